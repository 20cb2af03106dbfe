// Package kv stores everything that a fleet remembers on the broker: the outcome of each
// slot (Ledger), the definitions (Jobs), the live nodes (Nodes), the locks (Locks), the
// time up to which all slots are published (Watermark), and the slots that wait (Slots,
// Timers). All of it is streams and KV buckets of one namespace; docs/protocol.md defines
// the bytes. Callers see the sentinel errors of package job, never error codes.
//
// cronce.New opens a namespace itself. A program that only reads opens it like this:
//
//	store, err := kv.Open(ctx, js, kv.Options{ReadOnly: true})
//	if err != nil { ... }
//	for e, err := range store.Ledger().List(ctx, kv.ListFilter{Job: "report"}) {
//		if err != nil { ... }
//		fmt.Println(e.Slot.ID(), e.State, e.Attempt, e.Error)
//	}
//
// Everything is safe for concurrent use. Only nodes should write to the ledger, the locks
// and the watermark.
//
// # Design
//
//   - Writing (writing.go). A write stores a value only if a given revision is the last
//     one of its key; 0 means that the key is new. It returns a revision (stored),
//     job.ErrConflict (not stored, or overwritten since), job.ErrUnknown (the context
//     ended first), or a refusal. An unanswered write is sent again, the same bytes at the
//     same revision. After a conflict the write reads the key at the stream's leader: a
//     value with its own nonce is its own earlier copy.
//   - Batches (batch.go). Many definitions travel in atomic batches. A batch that fails
//     settles nothing: its writes are sent singly.
//   - Transport (transport.go). One inbox, one map of open questions, one goroutine that
//     writes to the connection, one timer. Callbacks run on the goroutine that receives.
//   - Connection (link.go). nats.go may hold its lock for a minute while it writes to a
//     socket. The link keeps what the connection reports, so callers never ask it.
//   - Permissions (denied.go, access.go). The server does not answer a request that it
//     does not permit; it reports a violation to the connection's error handler. Reads,
//     publications, API requests and writes of the registry then end with job.ErrDenied.
//     Other writes of a node are repeated, because an operator may correct the login.
//     access.go lists the subjects of each role.
//   - Reading (reading.go). A read of one key asks the stream's leader. A pass over many
//     keys asks any replica, in large batches, because no decision depends on it.
//   - Watching (watch.go). A watch lists the bucket, then follows its stream. A gap, a
//     reconnect or a failed audit ends the session; the next one reports the differences.
//   - Opening (open.go, setup.go). Open inspects everything before it creates anything,
//     and updates nothing. A revision-checked write stores the settings, so concurrent
//     creators agree. Setup changes what exists; Examine reports what Setup would change.
//   - Timers (timers.go). A trigger with a later time is a message that the server
//     schedules. Its subject is its name, so two triggers with the same key share one
//     timer.
//
// # Invariants
//
//   - Of any number of copies of a write, at most one is ever stored: the broker stores a
//     value at revision R only while R is the last one, and revisions only grow.
//   - A timeout means unknown, never no. Only an answer to a copy settles a write; a read
//     by itself never does, because it cannot see copies in flight.
//   - A question has one reply subject, open until the question ends. So any answer to any
//     copy counts, however late it arrives.
//   - Nothing that has a deadline waits for the connection's lock. The writer checks each
//     question after it has the lock, and does not send a question that has ended.
//   - Every reading is a hint. Even a leader's answer may be stale; a write decides.
//
// The reasons and the rejected alternatives are in docs/decisions: 0004 (the transport),
// 0020 (raw publications instead of the client's KeyValue) and 0021 (a batch settles its
// writes only if it succeeds).
package kv
