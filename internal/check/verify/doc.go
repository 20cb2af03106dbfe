// Package verify compares the slots that should exist with the ledger. It is pure: the caller
// passes definitions, waiting messages, records and the broker's time, and gets the slots
// that have a problem.
//
// # What should exist
//
// Every slot of every plan while the plan was in force ([plans.Entry.Plans]): after its
// beginning, up to and including its end. For a paused job only the slots due before the
// pause count; the others count when the pause ends.
//
// A job that comes after others should have a slot for each instant, and for each token of a
// triggered run, for which all of these jobs succeeded since it came after them. Their records show
// that. Such a slot is missing only after [Patience], within which the sweep of the fleet
// publishes a slot that was lost.
//
// What cannot be known is not judged, and the report says so and why: slots whose records the
// ledger may have removed, the time before the oldest known plan, slots that were due a
// moment ago, and jobs that are not in the registry.
//
// # Problems
//
//   - Missing: there is no record, no message, and no record of a range of missed slots that
//     covers the slot.
//   - NoOutcome: there is a record or a message, but no message will bring the slot an outcome, or
//     its next step is overdue by more than [Patience]. A slot that a live worker runs is in progress, however
//     long it takes, unless its job has a timeout.
//   - Doubled: the slot ended more than once. The ledger keeps one value for a slot, so it
//     never has two outcomes. The evidence is an attempt that began before the previous one
//     ended, or after one that succeeded, or an event that reports another outcome. Events may
//     be lost: an event proves a second end, but the absence of events proves nothing.
//   - Early: the handler started before the slot was due. The start in the record may come
//     from a wrong clock, so the broker's timestamps count too: the record was stored before
//     the slot was due, or so soon after that the run must have begun earlier. A slot whose
//     message was stored when the slot was due, or later, was not early.
//
// These are not problems: a waiting message of a slot that has its outcome (the ack was lost,
// and the message will be acked without a run); a record for a slot inside a range of missed
// slots (two producers judged it differently, and the record decides); a second message for a
// slot (a repair, or a sweep).
//
// # One pass, little memory
//
// The ledger lists records in the order of their last writes, which is nearly the order of
// the slots. So each job's plan is walked along with its records. A record moves the walk to
// its slot. A slot that was passed without a record is kept as one bit until its record comes
// or the pass ends. A week of a job that runs every second is 600,000 slots, and takes 0.4 MB
// if all are missing.
//
// Rejected: to sort the records of each job first (a week of a hundred such jobs does not fit
// into memory), and to ask the ledger for each slot (one request each).
//
// Lists are hints: a replica may lag, and a slot may be published after the messages were
// listed. So before it reports a problem, the caller reads the slot once more at the ledger's
// leader, and passes the result to the check.
package verify
