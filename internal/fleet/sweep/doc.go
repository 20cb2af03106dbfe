// Package sweep finds slots that make no progress because their messages are lost, and publishes a
// message for each.
//
// A slot makes progress because its message is delivered, again and again, until the slot has its
// outcome. A message can be purged, or lost with a broker's disk. The server can also stop
// delivering one that is still stored (stream.WaitingSlot.Stranded).
//
// # Design
//
// Twice a minute the oldest live producer makes a pass:
//
//  1. It reads what was written to the locks and the ledger since the last pass, headers
//     only. From that it keeps the unfinished slots, the locks with slots, and the chained slots
//     (those of jobs that run after others) that should exist.
//  2. It collects the suspects: slots whose next step is overdue by half a minute.
//  3. It lists the messages of the suspects' jobs, or all if there are many such jobs. A slot with a message is
//     not a suspect. After a listing of many bytes, it lists these messages again only after a while (listRate).
//  4. It reads the record of each other suspect at the ledger's leader, and publishes a
//     message for it under a new message ID: the stream would fold the old one.
//
// The suspects are:
//
//   - retrying, past the time of the next attempt;
//   - running, and its node is dead. If its node is live, the slot is a suspect only if its
//     record has not changed for five minutes, and only every five minutes: the worker that gets
//     the message asks that node;
//   - without a record, although this node's own producer published the slot;
//   - without a record, although its job's lock has admitted the slot, together with those
//     that wait behind it;
//   - without a record, although the slots that it comes after have all succeeded: the
//     message of one of those is published, and its worker sees what follows. If the slot still
//     has neither record nor message, this is repeated after 2.5 minutes, and then each time after
//     twice as long: within its duplicate window, the stream folds these messages into earlier
//     ones, even if those were purged;
//   - without a record, if its only message is stranded, or waits in a queue that its job has left
//     and that has no worker any more (movedJobs).
//
// If its job has left a suspect's queue, and the queue has no worker any more, the message is
// published in the job's present queue.
//
// A pass also publishes an alert for each slot of a job with on_late that has not started in
// time. The sweep remembers the slots that this node's producer published, and at its first pass
// adds those that have a message. Where the stream might no longer fold a second alert about a
// slot, the sweep first looks for the alert in the stored events. So each slot has one alert,
// whichever node sweeps.
//
// Once an hour it also removes what jobs and nodes that are gone have left in the state bucket (clean).
//
// # Invariants
//
//   - The sweep writes nothing to the ledger and decides nothing: the claim rules do.
//   - Two sweeps that find the same slot use the same message ID, and the stream folds them.
//   - A triggered run that is lost in its lock is ended. This cannot be undone, so the sweep first
//     lists all messages of the job, and checks that the listing has as many messages as the
//     streams' leaders count. A stranded message still has the run's payload: it is published again.
//   - If a record or slot cannot be read, the pass skips it and names it in the key "sweep",
//     which "cronce doctor" shows. One bad record does not end the pass.
//   - If no pass has been completed for a minute and a half, the second oldest producer makes one: the
//     oldest may be stuck, or may be a forged record without a process. Each younger producer waits a
//     minute and a half longer, up to a quarter of an hour. So a pass that takes minutes is not
//     repeated by the whole fleet at once. While passes are completed, a younger producer lists the
//     nodes only every five minutes.
//   - Twice a minute each producer checks that the newest write of the ledger that it knows is
//     still there (Seen). If not, one of the producers reports that the ledger was rewound.
//
// # Limits
//
// The alert about a late slot comes up to half a minute after the slot is late. It does not come if
// the slot was published and started late before the oldest living producer began.
//
// A slot without a record is found only if it fell due while this node produced, and while it
// remembered fewer than maxPublished of them; "cronce verify" finds all. A chained slot is found only
// while fewer than maxPublished of those are missing. A triggered run that
// was lost before it entered its lock is known only to the client that triggered it. A slot in the
// lock of a deleted job is left there, because its queue is not known; "cronce slot cancel" ends it.
//
// docs/decisions/0035-one-listing-a-pass.md has what was rejected.
package sweep
