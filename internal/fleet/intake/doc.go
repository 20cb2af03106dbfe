// Package intake turns messages of users' streams into slots, for jobs that messages start
// (job.On).
//
// Each plan of a job has a durable consumer on its stream. The consumer hands each message
// to one of the producers. That producer publishes a slot with the data of the message as
// payload, and acks the message when the slot is stored. If the producer dies in between,
// the message is redelivered and names the same slot, which the stream of slots or the
// ledger folds.
//
// Intake runs a jobIntake for each definition. The jobIntake lists the consumers (arrange), creates the
// one of the next plan, removes those that are drained, and runs a taker for each of the others. A
// taker makes slots of messages. If its plan has ended, the taker finds out when the consumer is
// drained.
//
//   - A message belongs to the plan that was in force when it was stored.
//     docs/decisions/0005-one-consumer-per-plan-of-on.md says why each plan has a consumer
//     of its own, and how edits are followed without losing or inventing runs.
//   - A consumer is removed only if the leader of the registry has no definition, or one
//     that does not need it. A definition that cannot be decoded removes nothing.
//   - A message that is too large for a payload still becomes a slot, with the reason in
//     place of the data. It is recorded as failed.
//   - A stream that does not exist or cannot be read is tried again. Each error is logged
//     once.
//
// # Known limits
//
// If a job is deleted while no producer runs, its consumer stays, because no definition
// names it any more (nats consumer rm STREAM NAME).
//
// If a job has no consumer, and its current plan has no On, its plans count as drained, because the
// consumer of the last one is removed when it is drained. Only the messages left in a work queue show
// that they have started no runs (jobIntake.judge). So on other streams, messages of a plan that has ended
// start no runs if no producer ran before the job got a schedule, if the consumer is removed by hand
// before it is drained, or if the plan came after two plans on one work queue and the producer ended
// after it removed the consumer of the first and before it created that of the second.
//
// If one subject of a stream is purged while messages of other subjects wait for a redelivery,
// because their producer died or their slots could not be published, the server may never redeliver
// these messages (integration/facts, 20). Nothing in the stream distinguishes them from messages
// that became slots. If you remove the consumer, it is created again and delivers all messages of
// its plan once more. A message that already started a run names the same run, and a message older
// than the horizon is recorded as expired.
package intake
