// Package torture breaks a fleet in every way it can, and checks that Cronce keeps its promise.
//
//	plan     what goes wrong and when, drawn from a seed, and the table of jobs
//	fleet    workers and producers: each is a process of this program
//	brokers  the servers that torture starts, one process each
//	proxy    between each process and the servers: cuts, slows, loses, holds back
//	faults   carries out the plan
//	record   what each handler writes to a file: its start, its end
//	witness  collects each write that the broker stores
//	report   combines all of that into a history
//	promise  checks the history; pure
//
// # Evidence
//
// The check does not rely on what the code under test says about itself if there is another
// source:
//
//   - Which slots exist is arithmetic on the periods of the jobs.
//   - When a handler ran, and at which fence, is in the record. Each line is one write, so
//     a KILL loses no line.
//   - All processes run on one machine and read one clock (package boot). So their times
//     can be compared, even if the code under test gets a wrong clock.
//   - Which writes were stored, and what they replaced, comes from the broker: its streams
//     republish each write with its sequence, its time and the sequence that it replaced.
//   - Torture asks the broker for its time itself.
//
// A run of a handler ends when the handler returns or when its context ends. A frozen
// process notices only when it wakes that a context has ended, and may act until then. So
// each process records when it did not run. A run that ends just after its process woke
// counts as ended when the process froze. The same holds if a busy machine starved the
// process.
//
// A process that is killed as soon as it wakes records nothing. So torture also records
// when it froze a process, and when torture itself did not run. For a killed process both
// count as pauses of that process. Rules about undisturbed processes use all of these
// lines, and how fast the servers answered torture. The rule about slow answers also uses
// how fast they answered the heartbeats of each process, which its proxy measures: a server
// can hold up one connection and serve all others. So on a busy machine these rules check
// less, but report nothing false.
//
// # Proof
//
// A run of torture is conclusive only if it has seen a takeover, a refused completion, and
// a redelivery of a slot that was claimed. The first fault stops a worker for longer than
// its lease in the middle of a handler, so that short runs are conclusive too.
//
// # Limits
//
// Torture does not notice:
//
//   - a broker that loses acknowledged writes, if it does not republish them either;
//   - mistakes that only cost another delivery, such as a nonce that is ignored;
//   - mistakes that need a freeze between two given lines of code, or an edit of a
//     definition;
//   - a node that counts its lease from the answer to a heartbeat, and not from its sending,
//     unless the lease is about 10 s: with a lease of 3 s, one attempt of a heartbeat lasts
//     longer than the margin;
//   - a rule that is broken by less than what the check allows for the error of each clock
//     that is involved, which is up to 750 ms.
//
// Why it is built this way: docs/decisions/0050-torture-runs-the-program-itself.md.
package torture
