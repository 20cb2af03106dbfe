// Package torture breaks a fleet in every way it can, and checks that the promise
// holds.
//
// # What it does
//
//	plan     what goes wrong, when, drawn from a seed
//	jobs     the table of jobs: a policy each, what its handler does, what may
//	         become of its slots
//	fleet    workers and producers, processes that are this very program
//	brokers  servers of its own, one process each, if it was given none
//	proxy    between each process and the servers, to cut, slow, lose, hold back
//	faults   carries the plan out
//	record   what handlers write down: every start, every end
//	evidence what the torture itself writes down: every fault, from when to when
//	witness  every write that the broker stores, as it tells of it
//	check    the promise, held against all of that: pure
//
// # Whom it believes
//
// Not the code under test, where there is another witness. Which slots exist is
// arithmetic on the periods of the table. That a handler ran, when, and at which
// fence, is in the record, which handlers append to files: a line is one write, so
// a KILL loses none. All processes are on one machine and read one clock (boot),
// so their times can be compared, however wrong the clocks are that the code under
// test is given. That a claim was won, and over what, is told by the broker: its
// streams republish each write with its sequence, its time and the sequence that
// it replaced. The broker's time is asked of the broker, by this process.
//
// A handler's run ends, for the check, when it returns or when its context ends: a
// handler that is told to stop has been told. A process that was frozen learns of
// it when it wakes; the promise says that it may act until then. So each process
// writes down when it did not run, and a run that ends in the moment after its
// process woke counts as ended when it was frozen. The same holds for a process
// that a busy machine has starved.
//
// A process that is killed as soon as it wakes writes nothing down. So the torture
// also writes down from when to when it froze a process, and when it did not run
// itself: for a process that was killed, both count as its own pauses. Rules about
// processes that nothing disturbs (slow answers lose no lease, a healthy producer
// publishes in time) look at all of these lines, and at how fast the servers
// answered the torture. On a machine with too much to do they judge less, and never
// wrongly.
//
// # Decisions
//
// Handlers are functions of this program, not commands: panics, permanent errors
// and ends of contexts are part of what is tested, and a command's end would be
// seen through the guard only.
//
// The proxy is told by the client's dialer where to connect to. Rejected: a URL of
// the proxy's in place of the servers', around which a client goes as soon as it
// learns of the other servers, and which no TLS certificate names.
//
// Some faults look at what they break: a connection is cut just before, or just
// after, a write to the ledger, the nodes, the watermark or the slots goes out. An
// order of two steps that is wrong shows when something happens between them, and
// by chance it seldom does. With TLS the proxy cannot see writes, and waits in
// vain.
//
// Each process has a lane of faults of its own, so that the same seed plans the
// same faults however long each of them takes to carry out. What comes of them also
// depends on the machine.
//
// Servers are killed one at a time, and the next one when every stream is on all
// of them again: what is acknowledged stands on two of three, and nothing more is
// promised. They are never frozen: a leader that wakes may answer from its past,
// and that would be a test of the engine.
//
// What a producer does beside others that come and go shows as slots that are late.
// Between two faults of its own no producer is healthy for long enough to be blamed
// for that. So the plan leaves one of them, and the servers, alone for a stretch,
// while the faults of all others go on.
//
// A run must have seen a takeover, a completion that was refused, and a message
// that came again for a slot that somebody had. One worker sleeps through its lease
// in the middle of a handler first of all, so that short runs have, too.
//
// # What it does not notice
//
// What a broker does that loses acknowledged writes together with their witnesses.
// Mistakes that only cost another delivery, which is allowed: a nonce that is
// ignored after a timeout, an unanswered claim that is forgotten or not adopted.
// Mistakes that need what no plan brings about: a freeze in the
// instant between two lines (a start that does not look at the lease again, a lock
// that is freed over another's), a producer that leaves in the milliseconds in which
// slots of its share fall due (its copies, which others hold, are then published by
// none of them), an edit of a definition. Trust that is counted
// from the answer shows with leases of some 10 s, not with 3 s: there a heartbeat's
// attempt lasts longer than the margin. A rule that is broken by less than the
// clocks are certain of: what a node judges by its own clock, by the bound that it
// states for that, up to 600 ms.
package torture
