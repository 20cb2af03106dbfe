// Package kv is the broker's memory: what became of each slot (Ledger), which
// jobs there are (Jobs), who is alive (Nodes), up to when every slot has been
// published (Watermark), and the slots that wait to be run (Slots). Everything
// is in streams and KV buckets of one namespace; docs/protocol.md has the bytes.
// Revisions, error codes and retries stay in here: callers see the sentinels of
// package job.
//
// # For programs
//
// The New of package cronce opens a namespace by itself. A program that only wants
// to know what became of slots opens it so:
//
//	store, err := kv.Open(ctx, js, kv.Options{ReadOnly: true})
//	if err != nil { ... }
//	for e, err := range store.Ledger().List(ctx, kv.ListFilter{Job: "report"}) {
//		if err != nil { ... }
//		fmt.Println(e.Slot.ID(), e.State, e.Attempt, e.Error)
//	}
//
// Everything is safe for concurrent use. Reads are hints (see below): what they say
// may be overtaken already. Nobody but nodes should write to the ledger, the locks
// and the watermark.
//
// # Design: one primitive
//
// Everything that decides something is a won write: a value stored on the
// condition that a given revision is the last one of its key (0: that there is
// none). Ledger, Jobs, Nodes and Watermark share one implementation of it. It
// returns only what is certain:
//
//   - a revision: the value was stored there;
//   - job.ErrConflict: it was not, or somebody has already overwritten it; no
//     copy of it can be stored any more;
//   - job.ErrUnknown: the context ended before the broker said. It may have been
//     stored, it may yet be;
//   - any other error: the broker refused, and stored nothing.
//
// A request that is not answered may have been lost, or carried out, or may
// still lie in a buffer. So it is sent again, the same bytes at the same
// revision, until it is answered. That is sound because of two facts:
//
//   - The broker stores a value at revision R of a key only while R is the last
//     revision of that key. Stored, it makes the last revision a larger one, for
//     good. So of any number of copies at most one is ever stored.
//   - Every value carries a nonce that its writer gave to this write only. So a
//     value with one's own nonce is one's own write.
//
// A copy that meets a conflict thus looks at what stands there, at the stream's
// leader. One's own nonce: an earlier copy was stored, and this is its answer.
// Another value at a larger revision: R can never be the last again, no copy
// can be stored any more; the write has lost, or was stored and overwritten,
// which comes to the same: whoever overwrote it had seen it, and what it claimed
// is no longer ours. Nothing at all, where R was expected: likewise. But a
// reading may be stale, and on replicated streams a write also conflicts with
// one that is still under way and may come to nothing (10164 in place of 10071):
// whatever does not explain the conflict settles nothing, and the write is sent
// again. A read never settles a write by itself: it cannot see what is still on
// its way.
//
// A refusal of one copy (the bucket is full) says nothing of an earlier copy
// that went unanswered: together they are job.ErrUnknown. After job.ErrUnknown
// the caller has the same choice as this package: the same value, with the same
// nonce, at the same revision, again.
//
// A request that the server does not permit is not answered either; the server
// complains about it aside (denied.go). Reads, publications and requests of the JetStream
// API end with that, as job.ErrDenied; of the writes, those of the registry, and those of
// people (Options.ReadOnly). The other writers are nodes that cannot do without: they
// wait, and a login may be mended under way.
//
// # Design: one transport
//
// The reasons are in docs/decisions/0004-one-transport-and-one-question-per-write.md.
//
// Everything goes over one transport: an inbox, a map of the questions that are open, one
// goroutine that writes, one timer. A write is one question. All its copies have the same
// reply subject, which stays open until the write is settled or its context ends: so any
// acknowledgement of any copy settles it, and any conflict is judged, however late they
// come. Copies go out after 1, 2, 4 s and so on; or later, if answers lately took longer
// than half a second, so that a broker that is slow under its load does not get more of it.
// Nobody waits for an answer on a goroutine of its own: the goroutine that takes all
// answers in calls back, and the reading that judges a conflict is a question too.
//
// Publications (publication.go) need no revision: a copy folds by its message ID, or finds
// its record. They end when the connection is lost, or after some seconds, and whoever
// knows the slot decides whether it is still to be sent. What could not be handed over in
// that time is not sent any more: this process may have slept.
//
// nats.go holds its connection's lock while it writes to the socket: up to a minute, if
// the peer does not read. So only the writer touches the connection. It looks at a
// question after it has waited for the lock, and leaves out what is not wanted any more.
// What others ask about the connection they ask of the link (link.go), which is told by
// the connection and never asks. Messages of one sender leave in their order; answers
// need none, since each write names the revision that it stands on.
//
// # Design: reading
//
// A read of one key is asked of the stream's leader ($JS.API.STREAM.MSG.GET);
// replicas answered 60 % of the reads right after a write with the value before
// it. Even the leader's answer is a hint: a leader that was deposed may not know
// it yet. Passes over a whole bucket ask any replica, in large batches
// (direct get), since nothing is decided by them. Of one job's records the broker
// is asked by subject first: it answers for up to 1,024 from its index, however
// many others have; more of them it has to look for in the stream.
//
// A watch lists the bucket and then follows its stream with a consumer of its
// own. A reconnect, a gap, a missing heartbeat or a failed audit (every half
// minute, one request: do last revision and number of keys agree?) ends that
// session; the next one lists again and tells the differences, those that left
// no marker too. Revisions that went back mean a restored bucket: all is told
// anew.
//
// # Design: opening
//
// Open looks at everything before it creates anything, so that a foreign bucket
// leaves nothing half made, and it updates nothing: an update that changed
// nothing has dropped delayed messages. The state bucket is made first, then the
// settings are won in it by a revision-checked write, then the rest is made by
// the settings that won. So racing creators end with the same settings, and a
// creator that dies half-way is finished by the next. Setup is the one that
// changes, and leaves to the operator what does not matter here (size limits,
// placement, descriptions). Examine takes the same look, and tells what Open would
// refuse and Setup would change: for who looks for what is wrong.
//
// A fleet that is tested by a clock of its own has the broker's timestamps read by
// that (Options.Stamp): here, where they come in, and nowhere else.
//
// # Design: access
//
// access.go is the one table of which role uses which subjects, from which "cronce
// auth" prints the permissions of a login. Who opens a namespace that is complete
// needs to create nothing, and who works on a queue that is there neither. A server
// checks what a client publishes to, and not where it asks the answer to be sent:
// so these permissions guard against mistakes; see docs/threat-model.md.
//
// # Design: timers
//
// A trigger in the future is a message with a schedule, which the server keeps,
// counts down and turns into one for the queue: no process of ours has to be alive
// when it is due, a restart loses none, and there may be millions. Each has a
// subject of its own, so the won write at revision 0 is what makes two triggers of
// one key one timer. It can happen that one comes twice (set again when it has
// fired; a server that dies while it fires): the ledger makes that one run.
//
// A timer has no message ID: a key that was cancelled could not be set again
// within the duplicate window. Schedules want a stream that discards old messages,
// so this stream must have no limit; an account's limit refuses what is new, and
// does no harm. A server below 2.12 has no such stream, nor has a namespace that was
// made on one; Open goes on without, Setup adds it.
//
// What fires goes to the queue that the job had when the timer was set. If nobody
// works on that any more it waits, for all to see, and the same trigger again
// moves it (package control).
//
// # Design: decisions
//
//   - The client library's KeyValue was not used. Its Create reads before it
//     writes over a marker, which can be stale; it repeats nothing; it knows
//     only one of the two conflicts on some paths; its Get asks any replica; its
//     watch can stall after a reconnect. Its layout is kept, byte for byte, so
//     that `nats kv` works on every bucket.
//   - Settling by a read after a timeout ("is my nonce there? then yes, else no")
//     was rejected: the write may land after the read.
//   - The message ID as a second fence was rejected: a server of one replica
//     checks the revision before the ID, three replicas check the ID first, and
//     IDs are forgotten with a restart.
//   - Keys with a time to live, as leases, were rejected: they expire by the
//     server's clock, in whole seconds, and a plain update makes them permanent.
//   - Ordered consumers for listing were rejected: a pass that ends needs an end
//     that does not hang when the last message expires under way; batches say
//     when there is no more.
//   - History is 1 everywhere: with more, an older value, and its older revision,
//     comes back when the newest expires.
package kv
