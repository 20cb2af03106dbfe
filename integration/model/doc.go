// Package model checks by machine the two ideas on which everything else stands:
// that a write to the ledger is one step, whatever is lost on the way to it and
// back, and that the rules which workers follow between such steps keep the
// promise in every order of events. It has tests only.
//
// # Is a write one step? (linear_test.go)
//
// Six clients work on five slots at a time, on the real kv.Ledger and kv.Nodes,
// by the real claim rules: they claim, complete, beat, fence, take over, and die
// with what they own. Three of them are behind a proxy that loses answers or cuts
// the connection; the single server is restarted, the leader of the three stopped.
// Clients are worse than workers: they fence whenever their dice say so, and go on
// completing after they were fenced. The answers that each got, and when, are a history,
// and porcupine looks for an order in which a sequential ledger says the same: per
// key a register that is written at a revision, and whose final values stay.
//
//   - A write that is repeated until it is answered is one call, from the first
//     request to the last answer.
//   - A write that was given up may land at any later time, or never: it has no
//     end. If any client has seen its nonce, it was stored.
//   - A conflict may mean stored and then overwritten (see package kv). If any client
//     has seen its nonce, it is two steps: stored, and overwritten before its writer
//     got the answer.
//   - A read on one server is linearizable. On three it is taken for a hint, which
//     is all that package kv promises: it may show what was true before, never what
//     is not stored yet. (In practice it was linearizable there too.)
//
// The same is checked with writes in atomic batches (batch_test.go): three clients share a
// connection whose answers come late at first, and each writes beside sixty other writes that
// are always open, so that their writes go in one batch. Batches lose their answers, are cut in
// the middle, and meet a restart of the server and the stop of the leader.
//
// The same clients and the same check find the mistakes of three ledgers that are wrong
// in one way each. Not covered: a server that loses acknowledged writes (a
// crash without sync), removal by age, and a bucket that is created again.
//
// # Are the rules right? (exhaustive_test.go)
//
// A small world in which every order of events is tried, breadth-first, each state
// once: one slot, one message, two workers (wholly) or three (to the depth in the
// test), one or two attempts. Decisions are those of core.Decide, core.Complete and
// job.Release; the rest of a worker is written out in worker_test.go, nodes and
// the broker in machine_test.go. In it,
//
//   - a write lands at any time, or never, also long after its writer gave up, was
//     replaced or died; its answer comes at any later time, or not at all;
//   - the message is delivered to any worker without a task at any time, as often
//     as it likes, also while another holds it; an ack from any worker removes it;
//   - time goes in ticks, the same for all: a lease is three, the margin one. A
//     node trusts itself from when it sent its heartbeat, for two; its handlers end
//     within the third. A key can be fenced when it has stood still for three;
//   - a worker crashes, stops in order, sleeps through the end of its lease and
//     wakes, and starts over under a new name, any number of times.
//
// Checked in each state: a final record never changes and no second success is
// stored; no handler starts without a won claim of its incarnation, after its
// lease, or twice for one attempt (so an at-most-once slot starts at most once);
// attempts stay within their number; while a handler can act its claim stands in
// the ledger; a message goes only when its slot has its outcome; and, if no worker
// dies from here on, an outcome can still be reached. Thirteen mutants of the
// worker each break the invariant that the test names, or the test fails.
//
// What makes the world finite, and small:
//
//   - A revision is one bit to the worker that holds it: is it still the last? Names that
//     nothing refers to any more are used again.
//   - Only how long each key has stood still is kept, not which node has seen it for
//     how long: no node has seen it still for longer, and one that saw less can do less.
//   - A heartbeat lands when it is sent. One that lands later gives less trust for
//     the same key; one of a dead incarnation only keeps challengers waiting.
//   - A conflict is answered at once, since a worker that waits can do
//     less. A won write's answer is not hurried.
//   - A worker that stops goes on taking slots: it can do more.
//   - Being frozen is no other than being slow, until the lease is over; so a
//     worker freezes only there.
//   - Workers are alike, so states that differ in which is which are one.
//
// Left out, where the promise itself has its edge: a handler that wakes after its
// lease ends at once here, where a real one may act until its clock is looked at;
// and one that ignores its context is not in the world. Not modelled either: time
// for the rules (deadlines, horizon, backoff: retries are due at once), shards, on_lease_lost: finish, the sweep, a broker that forgets, clocks that run
// at different speeds.
//
// # Does the lock hold? (lock_test.go)
//
// Another small world, explored in the same way: two slots of one job that may not
// run beside each other, its lock, and two workers, each of which may have both in
// hand. Decisions are those of core.Decide, core.Complete, core.NewEntrant, Lock.Enter
// and Lock.Leave. What the world above shows is taken for granted: the claim of a
// live worker stands, and one that ends does so at once, with its handler. In it,
//
//   - a write of the lock, or of a record, lands at any time or never, also long
//     after its writer ended; its answer comes at any later time, or not at all;
//   - a worker asks the lock as it is, or as its own last write left it, which may
//     be long ago; and may sleep between any two steps;
//   - messages come at any time, as often as they like, looked up first or not; a
//     parked slot looks again at any time, or is given back;
//   - a worker crashes anywhere, also between the outcome and the lock.
//
// Checked in each state: a handler runs only while its slot has the one place, and
// its claim; and, if no worker dies from here on, both slots can still have their
// outcomes, whatever was left in the lock. Eight mutants each break one of these.
// Overlap is queue, skip or latest; not modelled are replace, more places than one,
// more than two slots, a lock that is full, edits, and wake-up calls (a parked slot
// looks by itself).
//
// # Decisions
//
// Go, not spin or TLA+: the rules that are checked are the ones that run, and the
// check runs with the other tests. The price is the worker's other half, written a
// second time; the tests of package consumer hold the real one against the same
// invariants. Rejected: driving the real consumer with a scheduler of our own,
// which would need its goroutines to be steps.
package model
