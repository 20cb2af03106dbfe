// Package intake turns the messages of users' streams into slots, for the jobs that
// messages start (job.On).
//
// A durable consumer on the stream, one for each such job, hands each message to one
// of the producers that ask. That one publishes a slot for it, named by the message's
// ID or its sequence, with its data as payload, and acks it when the slot is on the
// broker. A crash in between brings the message again, to anybody, and the same slot:
// it is folded, by the stream of slots or, later, by the ledger.
//
// # Decisions
//
// The consumer begins where the job does: at the time at which the registry says that
// it came into force, by the broker's clock, however late the first producer comes
// to it. It is made when it is missed, and keeps its place while nobody is there, or
// while the job is paused.
//
// What cannot be handed on, since it is larger than a payload may be, is a slot all
// the same, with the reason in place of the data: it is recorded as failed.
//
// A stream that is not there (yet), or does not let itself be read, is complained
// about, and asked for again. Each complaint is logged once.
//
// The consumer goes with the job: when that is removed, or is started by something
// else, or by another stream, each producer removes the consumer of before. That is
// found in the job's past as well, should no producer have been there. Only of a job
// that was removed while none was there nothing is left to tell of it: its
// consumer stays (nats consumer rm STREAM NAME).
//
// # Known limit
//
// Somebody who purges one subject of a stream, while messages of others that the same
// job takes are in hand, can make the server forget to give those out again
// (integration/facts, 20; kv/strand.go has the like in the stream of slots). It takes
// that their slots could not be published, or that a producer died with them, and that
// the stream has nothing older that was taken. They stay in the stream, but nothing
// there tells them from those that were taken: the stream is its owner's, who keeps
// messages as long as he likes, while of their slots only those are known that the
// ledger remembers. Who removes the consumer has it made again, and all messages taken
// once more: those that were runs are the same runs.
package intake
