// Package model checks by machine the two ideas on which everything else stands. First, a
// write to the ledger is one step, whatever is lost on the way to the broker and back. Second,
// the rules that workers follow between such steps keep the promise in every order of events.
// The package has tests only.
//
// # Is a write one step? (linear_test.go)
//
// Six clients work on five slots at a time, on the real kv.Ledger and kv.Nodes, by the real
// claim rules: they claim, complete, beat, fence, take over, and die with what they own. Three
// of them are behind a proxy that loses answers or cuts the connection. The single server is
// restarted; of three servers, the leader is stopped. The clients do what no worker may do: they
// fence at random, and go on completing after they were fenced. The answers that each client
// got, and when, are a history. Porcupine looks for an order in which a sequential ledger gives
// the same answers. The sequential ledger has a register for each key, which is written at a
// revision, and whose final values stay.
//
//   - A write that is repeated until it is answered is one call, from the first request to the
//     last answer.
//   - A write that its client gave up may land at any later time, or never: it has no end. If
//     any client has seen its nonce, it was stored.
//   - A conflict may mean that the write was stored and then overwritten (see package kv). If any
//     client has seen its nonce, it is two steps: stored, and overwritten before its writer got
//     the answer.
//   - A read on one server is linearizable. On three servers the check takes it for a hint, which
//     is all that package kv promises: it may show what was true before, but nothing that is not
//     stored yet. (In every run so far it was linearizable there too.)
//
// The same is checked with writes in atomic batches (batch_test.go): three clients share a
// connection whose answers come late at first, and each writes beside sixty other writes that
// are always open, so that their writes go in one batch. Batches lose their answers, are cut in
// the middle, and meet a restart of the server and the stop of the leader.
//
// The same clients and the same check find the mistakes of three ledgers, each of which is wrong
// in one way. Not covered are a server that loses acknowledged writes (a crash without sync),
// removal by age, and a bucket that is created again.
//
// # Are the rules right? (exhaustive_test.go)
//
// A small world in which every order of events is tried, breadth-first, each state once: one
// slot, one message, one or two attempts, and two workers (all states) or three (to the depth in
// the test). Decisions are those of core.Decide, core.Complete and core.Release. The rest of a
// worker is written out in worker_test.go, nodes and the broker in machine_test.go. In this
// world,
//
//   - a write lands at any time or never, also long after its writer gave up, was replaced or
//     died; its answer comes at any later time, or never;
//   - the message is delivered to any worker without a task at any time, any number of times,
//     also while another worker holds it; an ack from any worker removes it;
//   - time goes in ticks, which are the same for all: a lease is three ticks, the margin one. A
//     node trusts itself for two ticks after it sent its heartbeat; its handlers end within the
//     third. A key can be fenced when it has stood still for three ticks;
//   - a worker crashes, stops in order, sleeps through the end of its lease and wakes, and starts
//     again under a new name, any number of times.
//
// Each state is checked: a final record never changes, and no second success is stored. No
// handler starts without a won claim of its incarnation, after its lease, or twice for one
// attempt (so an at-most-once slot starts at most once). Attempts stay within their number. While
// a handler can act, its claim is in the ledger. A message is removed only when its slot has its
// outcome. If no worker dies from then on, an outcome can still be reached. Thirteen mutants of
// the worker each break the invariant that the test names, or the test fails.
//
// These simplifications make the world finite, and small:
//
//   - A worker knows of a revision only whether it is still the last. Names to which nothing
//     refers any more are used again.
//   - The state holds how long each key has stood still, and not which node has seen that for
//     how long: no node has seen it stand still for longer, and one that saw less can do less.
//   - A heartbeat lands when it is sent. One that lands later gives less trust for the same key;
//     one of a dead incarnation only lets challengers wait longer.
//   - A conflict is answered at once, since a worker that waits can do less. The answer to a
//     write that won comes at any time.
//   - A worker that stops goes on taking slots, so it can do more than a real one.
//   - A frozen worker is no different from a slow one until its lease ends, so workers freeze
//     only at that moment.
//   - Workers are alike, so states that differ only in which worker is which are one state.
//
// Left out, where the promise itself has its edge: a handler that wakes after its lease ends at
// once here, where a real one may act until it looks at its clock; and no handler here ignores
// its context. Not modelled either: times in the rules (deadlines, the horizon, backoff: retries
// are due at once), shards, on_lease_lost: finish, the sweep, a broker that forgets, and clocks
// that run at different speeds.
//
// # Does the lock hold? (lock_test.go)
//
// Another small world, explored in the same way: two slots of one job that must not run at the
// same time, the job's lock, and two workers, each of which may hold the messages of both slots.
// Decisions are those of core.Decide, core.Complete, core.NewEntrant, Lock.Enter and Lock.Leave.
// What the first world shows is taken for granted: the claim of a live worker stands, and a
// worker that ends does so at once, with its handler. In this world,
//
//   - a write of the lock or of a record lands at any time or never, also long after its writer
//     ended; its answer comes at any later time, or never;
//   - a worker reads the lock, or uses it as its own last write left it, which may be long ago;
//     it may sleep between any two steps;
//   - messages come at any time, any number of times, whether or not the slot's record was read
//     first; a parked slot asks for the lock again at any time, or is given back;
//   - a worker crashes anywhere, also between the outcome and the lock.
//
// Each state is checked: a handler runs only while its slot has the lock's one place, and its
// claim. If no worker dies from then on, both slots can still have their outcomes, whatever was
// left in the lock. Eight mutants each break one of these. Overlap is queue, skip or latest. Not
// modelled are replace, more places than one, more than two slots, a lock that is full, edits,
// and calls that wake a parked slot.
//
// # Decisions
//
// The model is written in Go, and not in TLA+ or for Spin: the rules that are checked are the
// ones that run, and the check runs with the other tests. The price is that the other half of the
// worker is written a second time; the tests of package consumer hold the real one to the same
// invariants. Rejected: driving the real consumer with a scheduler of our own, which would need
// its goroutines to be steps.
package model
