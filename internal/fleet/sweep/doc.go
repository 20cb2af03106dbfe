// Package sweep finds slots that nothing moves any more, and gives each a message
// again.
//
// A slot's message is its engine: it comes to a worker, and comes again until the
// slot has its outcome. But a message can be purged, or lost with a broker's disk.
// So twice a minute one node of the fleet looks for slots that should have moved
// and have no message, or only one that the server has forgotten to deliver
// (kv.WaitingSlot.Stranded):
//
//   - those with a record: retrying, past the time of the next attempt; running,
//     under a node that is dead;
//   - those without one that come after others, which have all succeeded;
//   - those without one whose turn in their job's lock has come: they keep the other
//     slots of their job waiting;
//   - those without one, of which the node's own producer knows because it handed
//     them out: due, and neither recorded nor in the stream.
//
// Such a slot is offered again, under a message ID of its own: the stream would
// fold the first one silently. The worker that gets it does what the claim rules
// say: resume it, or end it when it is too old. The sweep itself writes nothing to
// the ledger, so that producers need no right to.
//
// What should have followed from others is not offered itself: the message of one of
// those is, once. Who gets it finds the outcome, and does what is to be done after it
// (package consumer), with the definition and the payload as they are then.
//
// # Who sweeps
//
// Of the live producers the oldest sweeps, as the nodes bucket has them: it remembers
// the most. Two that disagree for a moment offer the same messages under the same IDs,
// which the stream folds, and a message too many costs a delivery.
//
// A sweep that came to its end says so in the key "sweep" of the state bucket. If no
// sweep has done so for a minute and a half, any producer makes one: the oldest may be
// stuck, or no node at all but a record that somebody has written.
//
// # Decisions
//
// Records are followed, not listed: each pass reads what was written since the
// last one, headers only, since state, owner and retry time stand there. So a pass
// costs one small message for each slot of that minute, however large the ledger
// is, and only a node that begins to sweep reads all of it once.
//
// The locks are followed in the same way. Most name one slot, which was short, has
// ended and was left there (package consumer): its last record, which comes by in the
// same pass, says so. Of the others only those are looked at that nothing keeps from
// going on. A worker may have those that wait behind them in hand, which cannot be seen
// from here; they are offered only together with one before them that was lost. A
// triggered run that is lost there cannot be offered again, since its payload was in its
// message: it is ended, which cannot be taken back, and so only when the stream's leader
// says that there is no message.
// Rejected: a record of each triggered run that waits, with its payload (a write for
// what only a purge makes necessary); the node that has a slot in hand in the lock (a
// write for each redelivery).
//
// The messages are listed once in a pass, and only if there is a suspect: nearly always
// there is none. So what a pass asks grows with what is lost, not with the jobs that
// have a backlog. A list is a hint, so each slot that is not in it is looked up at the
// ledger's leader before it is offered.
//
// What cannot be read is passed over and named in the key "sweep", which "cronce doctor"
// shows: one bad record must not take the others' sweep from them.
//
// Before each turn a producer looks whether the newest write of the ledger that it knows
// of is still there (Seen). If not, the ledger was purged or restored, and one of the
// producers says so, once.
//
// Known limits: a slot without a record whose message was lost is found only if it
// fell due while its sweeper already produced (at most the newest maxHanded of them);
// verify finds all. A triggered run that was lost before it came to its job's lock has
// left no trace but with who triggered it, who may do so again under the same key. A
// slot in the lock whose job was deleted is left there: nobody knows its queue, and
// "cronce slot cancel" ends it.
package sweep
