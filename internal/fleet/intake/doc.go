// Package intake turns the messages of users' streams into slots, for the jobs that
// messages start (job.On).
//
// Each plan of a job has a durable consumer on its stream. It hands each message to one
// of the producers, which publishes a slot with the message's data as payload and acks
// the message when the slot is on the broker. If the producer dies in between, the
// message is delivered again and names the same slot, which the stream of slots or the
// ledger folds.
//
// Intake follows the registry's copy and runs a follower for each definition. The
// follower looks which consumers there are (arrange), creates the next plan's, removes
// those that are drained, and runs a taker for each of the others. A taker makes slots of
// messages and, if its plan is over, finds out when it is drained.
//
// # Decisions
//
// A message belongs to the plan that was in force when it was stored. Why there is one
// consumer for each plan, and how edits are followed without losing or inventing runs:
// docs/decisions/0005-one-consumer-per-plan-of-on.md.
//
// A consumer is removed only if the registry's leader has a definition without use for
// it, or none. A definition that cannot be read removes nothing.
//
// A message that is larger than a payload may be is a slot all the same, with the reason
// in place of the data: it is recorded as failed.
//
// A stream that is not there, or that cannot be read, is asked for again. Each error is
// logged once.
//
// # Known limits
//
// If a job is deleted while no producer runs, its consumer stays: nothing is left that
// names it (nats consumer rm STREAM NAME).
//
// If one subject of a stream is purged while messages of other subjects are in hand, the
// server may never deliver those again (integration/facts, 20). That takes a producer
// that died with them, or slots that could not be published. Nothing in the stream tells
// them from messages that were taken. When the consumer is removed it is made again, and
// delivers all messages of its plan once more: those that were runs are the same runs,
// and those older than the horizon are recorded as expired.
package intake
