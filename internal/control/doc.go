// Package control is what operators do to a namespace while the fleet works: they change
// jobs, trigger runs, cancel and retry slots, and list what is stored. The command line,
// the NATS service and the HTTP API are written on it, so that an operation means the
// same everywhere.
//
//   - control.go: Control, its Config, conflicts, and cursors of listings.
//   - jobs.go: list and show jobs.
//   - apply.go, plan.go, diff.go: bring jobs in from a file.
//   - edit.go: pause, resume, release and remove a job.
//   - trigger.go, backfill.go: run slots outside the schedule, or of the past.
//   - slots.go, slot.go: list, show and explain slots (package story).
//   - cancel.go, reopen.go: end a slot, or give it a new start.
//   - nodes.go: list nodes and workers.
//
// # Jobs
//
// Each change of a job is one write at the revision that the operation has read (see
// package kv). If two operators change one job at the same time, the second gets a
// [*ConflictError], which names the first, and changes nothing.
//
// An operation on several jobs is several writes. It reads and checks everything before
// the first write. After a crash each job is either unchanged or as wanted, and the same
// operation does the rest.
//
// If the context ends before a write is answered, the error wraps job.ErrUnknown: the
// write may have happened. Repeat the operation to settle it.
//
// # Slots
//
// A slot's record belongs to its owner while the owner may be alive. [Control.Cancel]
// therefore asks the owner to end the slot. It writes the outcome itself only if the owner
// is proved dead. [Control.Retry] first announces the new start, then wins the record,
// then publishes the message: after a crash at any point, the same call finishes the rest.
//
// [Control.Trigger] and [Control.Backfill] only publish slots. The slots' IDs fold any
// number of copies into one run, so both can be repeated at any time. What they read first
// saves messages and informs the operator. It does not decide whether a slot runs twice.
//
// # Listings
//
// A listing returns rows, which have the JSON names of the commands and of the endpoints.
// To continue a listing, pass the [Cursor] of the last row. A cursor is made of the row
// itself, so nothing is remembered between two calls and any node can continue.
//
// No operation prints, prompts or logs. The time is the broker's: the clock of the
// operator's machine is not used.
//
// The alternatives that were rejected are in docs/decisions/0060-edits-of-operators.md.
package control
