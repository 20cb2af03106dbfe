// Package model checks mechanically the two claims on which everything else depends. First, a
// write to the ledger is one atomic step, whatever is lost on the way to the broker and back.
// Second, the rules that workers follow between such steps keep the promise in every order of
// events. The package has only tests.
//
// # Is a write one step? (linear_test.go)
//
// Six clients work on five slots at a time, on the real kv.Ledger and kv.Nodes, by the real
// claim rules: they claim, complete, write heartbeats, fence, take over, and die with what they
// own. Three of them are behind a proxy that loses answers or cuts the connection. In the world
// with one server, the server is restarted. In that with three, the leader is stopped. The clients
// also do what no worker may do: they fence at random, and go on completing after they were fenced.
// The answers of all clients, with their times, are a history. Porcupine searches for an order in
// which a sequential ledger gives the same answers. The sequential ledger has a register for each
// key. A write names the revision that it expects, and a final value is never replaced.
//
//   - A write that is repeated until it is answered is one call, from the first request to the
//     last answer.
//   - A write that its client gave up may land at any later time, or never, so its call has no
//     end. If any client has seen its nonce, it was stored.
//   - A conflict may mean that the write was stored and then overwritten (see package kv). If any
//     client has seen its nonce, it counts as two steps: it was stored, and it was overwritten
//     before its writer got the answer.
//   - A read on one server is linearizable. On three servers the check treats a read as a hint,
//     which is all that package kv promises: it may show what was true before, but nothing that is
//     not stored yet. (In every run so far it was linearizable there too.)
//
// The same is checked with writes in atomic batches (batch_test.go). Three clients share each
// connection. Its answers are late at first, and sixty other writes are always in flight on it, so
// that the clients' writes go in batches. Answers to batches are lost, batches are cut in the middle,
// the server is restarted, and the leader is stopped.
//
// To test the check, three ledgers are each wrong in one way, and the check must find that. Not
// covered are a server that loses acknowledged writes (a crash without sync), removal by age, and a
// bucket that is created again.
//
// # Are the rules right? (exhaustive_test.go)
//
// The test tries every order of events in a small world, breadth-first, and visits each state
// once. The world has one slot, one message, one or two attempts, and two workers (all states; with
// two attempts only in the long tests) or three (to the depth in the test). core.Decide,
// core.Complete and core.Release make the decisions. The rest of a worker is modelled in
// worker_test.go, nodes and the broker in machine_test.go. In this world,
//
//   - a write lands at any time or never, even long after its writer gave up, was replaced or
//     died; its answer comes at any later time, or never;
//   - the message is delivered to any worker without a task at any time, any number of times,
//     even while another worker holds it; an ack from any worker removes it;
//   - time passes in ticks, which are the same for all: a lease is three ticks, the margin one. A
//     node trusts itself for two ticks after it sent its heartbeat; its handlers end within the
//     third. A node can be fenced when its key has not changed for three ticks;
//   - a worker crashes, stops in order, sleeps through the end of its lease and wakes, and starts
//     again under a new name, any number of times.
//
// The test checks in each state: a final record never changes, and no second success is stored. No
// handler starts without a won claim of its incarnation, after its lease, or twice for one
// attempt (so an at-most-once slot starts at most once). There are no more attempts than the job
// allows. While a handler can act, its claim is in the ledger. A message is removed only when its
// slot has its outcome. From each state an outcome can be reached if no worker dies any more. Each
// of thirteen mutants of the worker must break the invariant that the test names for it.
//
// These simplifications make the world finite, and small:
//
//   - A worker knows of a revision only whether it is still the last one. The name of an
//     incarnation to which nothing refers any more is used again.
//   - The state has how long each key has not changed, and not how long each node has observed
//     that. No node can have observed it for longer, and a node that observed it for less time can
//     do less.
//   - A heartbeat lands when it is sent. A heartbeat that lands later would give less trust for the
//     same key. A heartbeat of a dead incarnation would only make challengers wait longer.
//   - A conflict is answered at once, because a worker that waits can do less. The answer to a
//     write that won comes at any time.
//   - A worker that stops goes on taking slots, so it can do more than a real one.
//   - A frozen worker is no different from a slow one until its lease ends, so workers freeze
//     only at that moment.
//   - Workers are alike, so states that differ only by an exchange of workers are one state.
//
// Two things are left out where the promise itself has its edge. A handler that wakes after its
// lease ends at once here, while a real one may act until it checks its clock. And no handler here
// ignores its context. Also not modelled are times in the rules (deadlines, the horizon, backoff:
// retries are due at once), shards, on_lease_lost: finish, the sweep, a broker that loses data, and
// clocks that run at different speeds.
//
// # Does the lock hold? (lock_test.go)
//
// The test explores another small world in the same way. It has two slots of one job that must not
// run at the same time, the job's lock, and two workers, each of which may hold the messages of both
// slots. core.Decide, core.Complete, core.NewEntrant and the methods of core.Lock make the decisions.
// The test assumes what the first world shows: the claim of a live worker stands, and a worker that
// ends does so at once, with its handler. In this world,
//
//   - a write of the lock or of a record lands at any time or never, even long after its writer
//     ended;
//   - a worker reads the lock, or uses it as it last read or wrote it, which may be long ago;
//     the worker may sleep between any two steps;
//   - messages come at any time, any number of times, to both workers, whether or not the slot's
//     record was read first;
//   - a slot that finds no place writes its record, then its entry in the line, and then looks at the
//     lock again; a worker that frees a place calls the first slot, then publishes its message, and
//     then looks at the line once more if it was empty;
//   - a worker crashes at any step, and the sweep publishes messages;
//   - an operator cancels a slot that has no owner, and reopens one that failed.
//
// The test checks in each state: a handler runs only while its slot has the lock's only place, and
// its claim; and no state is quiet while a slot has no outcome, or holds a place. Without crashes that
// holds without the sweep. Each mutant breaks one of these. The overlap policy is queue, skip or latest.
// The worlds are explored to a depth. Not modelled are the policy replace, more than one place, more than
// two slots, several requests in one write, entries that were read ahead, times, shards and edits.
//
// # Decisions
//
// The model is written in Go, and not for TLA+ or Spin: it checks the rules that really run, and it
// runs with the other tests. The price is that the other half of the worker is written a second
// time. The tests of package consumer check the same invariants on the real worker. Rejected: a
// scheduler of our own that drives the real consumer, because its goroutines would have to be cut
// into steps.
package model
