// Package verify holds the slots that should exist against the ledger. It is
// pure: the caller brings the definitions, the messages that wait, the records
// and the broker's time, and gets the slots with which something is wrong.
//
// # What should exist
//
// The slots of every plan while it was in force ([job.Entry.Plans]): after its
// beginning, up to and including its end; of a job that is paused only those due
// before the pause, the others when it has ended. What cannot be known is not judged, and
// the report says so and why: slots whose records the ledger may have forgotten,
// the time before the oldest plan that is known, slots that fell due a moment ago, and jobs that are not in
// the registry (any more).
//
// And of a job that comes after others, a slot for each instant, and each token of a
// triggered run, of which all these have succeeded since it does: known from their
// records, so that the walk is one of what they say. The fleet's own sweep has
// [Patience] to mend what is lost between two of them.
//
// # What is wrong
//
//   - Missing: no record, no message, and no record of a range of missed slots
//     that covers the slot.
//   - NoOutcome: there is a record or a message, but nothing that will move it, or
//     it should have moved more than [Patience] ago. A slot that a live worker
//     runs is in progress, however long it takes, unless its job has a timeout.
//   - Doubled: more than one end. The ledger has one key for a slot and keeps one
//     value of it, so two outcomes never stand side by side; what can be seen is
//     an attempt that began before the one before it had ended, or after one that
//     had succeeded, and an outcome in the stream of events beside another one in
//     the ledger. Events are told, not promised: they convict, their absence
//     acquits nobody.
//   - Early: its handler started before it was due. The start that its worker wrote down
//     may be by the very clock that was wrong, so the broker's timestamps count too: a
//     record that was stored before the slot was due, or so soon after that its run
//     cannot have begun later. A slot whose message was stored when it was due was not
//     early.
//
// None of these: a message that waits although its slot has its outcome (the ack
// was lost; it will be acked without a run), a record of its own for a slot inside
// a range of missed ones (two producers judged it differently, and the slot has
// the outcome that was recorded), a second message for a slot (a repair, a sweep).
//
// # One pass, little memory
//
// The ledger lists records in the order of their last writes, which is nearly the
// order of the slots. So each job's plan is walked along with its records: a
// record takes the walk up to its slot, and what was passed without a record is
// kept, as one bit, until its record comes or the pass ends. A week of a job that
// runs every second is 600,000 slots, and takes 0.4 MB if all of them are missing.
//
// Rejected: to sort the records of each job first (a week of a hundred such jobs
// would not fit), and to ask the ledger for each slot (one request each).
//
// Lists are hints: a replica may lag, and a slot may be published after the
// messages were listed. So before anything is reported the caller looks at each
// problem once more, at the ledger's leader, and tells this package what it found.
package verify
