// Package core holds the rules that every node applies alike.
//
// The package is pure: it has no clock, no broker, no goroutine and no randomness. Two
// nodes with the same input compute the same result. That is why every replica may
// schedule, and why no leader is needed.
//
// The path of a slot through the rules:
//
//	plans.Entry               the job, its past plans and its pauses
//	   |  Stretches: the plans' schedules, cut at edits and pauses
//	   v
//	plans.Due                 which slots are due; what the catch-up policy does with late ones
//	   |
//	   v
//	Message (message.go)      the slot on its way from a producer to a worker
//	   |
//	   v
//	Decide (claim.go, age.go)  what the worker does next: wait, claim, start, record, ack
//	   |  Lock (lock.go): which slots of one job may run at once
//	   v
//	job.Record                Complete, Release, Conclude (outcome.go, shard.go): what is written
//
// Messages have two other sources. Chain (follow.go) returns the messages of a slot that runs
// after other slots have succeeded. EventRun (on.go) returns those of a run that a message of a
// user's stream starts. Package exchange holds the other values that nodes exchange: records,
// events, node records, announcements, the watermark. Package output decides how much of a
// handler's output is kept.
//
// # The rules propose, the broker decides
//
// Every function that changes something returns the value to write, and the caller writes
// it at the revision that it read. If another node wrote first, the broker refuses the
// write, and the caller reads again. A function never assumes that its proposal was
// written.
//
// Decide looks at the slot's record first. If there is no record, it checks the slot's
// instant, its age, and the plan in force at its instant. If the slot waits for a retry, it
// checks the delay. If another node has claimed the slot, it checks whether that node is proved
// dead, or does not hold the claim. Only then does it look at the whole slot of a shard, and at
// the job's lock. If it needs a fact that the worker has not read, it returns the action that
// obtains the fact: Prove, ReadWhole, Enter.
//
// An edit of the job does not change the attempts of a slot that was claimed: the record holds
// their maximum. Otherwise an edit could start an at-most-once slot twice. After the first claim,
// the job's plan is not consulted any more.
//
// # Invariants
//
// Comments and tests refer to these by number.
//
//  1. The same definition yields the same slots on every node.
//  2. Slots are published before the watermark moves, and it never goes back.
//  3. No handler starts without a won write.
//  4. No handler's context outlives its node's lease, unless on_lease_lost is finish.
//  5. A slot gets one outcome; a worker that lost its claim cannot complete.
//  6. A message is acked only after the slot's record is stored.
//  7. The ledger's retention exceeds the horizon; a slot past the horizon never starts.
//  8. A write without an answer is unknown: it is repeated at the same revision.
//  9. No node loses its lease while the broker answers within a third of it, and an
//     overloaded broker never makes a node send more.
//  10. No slot stays without an outcome past its horizon while a broker and a worker with a
//     handler live.
//  11. A value that is too large is cut, not retried for ever.
//
// Every value from the broker may have been written by anyone with a login. So a decoder
// bounds each member (package codec), and no rule loops or allocates by a number that was
// not bounded.
//
// The tests check the rules as tables, as scenario files (testdata) and as properties. The
// model in lab/model explores them together with a broker that loses answers.
package core
