// Package consumer turns slot messages into outcomes: it takes them from one queue, claims
// the slots, runs their handlers, records what came of them, and answers the broker.
//
// Programs get a Consumer from package cronce, or from "cronce run". [New] is for programs
// with a broker of their own: [Config] says what it needs. The documentation of package
// cronce says what a handler may rely on.
//
// # Design
//
// A delivered message is a task, a machine of named states (task.go). One function takes a
// step of it. A flag says whether the step may block. If it would block and may not, the
// task moves to a goroutine of the pool, and takes the step there.
//
//	arrived -> looking -> deciding -> entering -> writing -> running -> recording -> following -> settling -> leaving
//	                      |  ^        the lock    the claim  the        its end      chains,      the ack     the lock
//	                      v  |                               handler                 alerts
//	          proving, dividing, waiting
//
// core.Decide has the claim rules, and is pure. The states do what it says. A step that
// writes hands the task over with the write: the answer goes on with it, and no goroutine
// waits. A short slot needs a goroutine only for its handler.
//
//	pull.go     asks the sources for as many messages as the limiter allows
//	task.go     the machine: states, steps, verdicts, and panics
//	decide.go   reads what a decision needs, and asks core.Decide
//	lock.go     enters and leaves a job's lock; locks.go remembers how the locks stand
//	claim.go    writes a claim
//	attempt.go  runs the handler, under a context that ends with the lease
//	record.go   writes the end of an attempt
//	follow.go   publishes what follows from an outcome
//	shard.go    reads, writes and concludes the whole slot of a shard
//	waitlist.go keeps the slots that wait for their lock
//	limiter.go  bounds the handlers of a queue that run at once in the process
//	inflight.go marks the messages that are not answered yet, every third of a lease
//	table.go    holds every slot that the process owes a claim, a run or a completion
//	pool.go     has the goroutines
//	report.go   publishes events, logs, measures and traces
//
// # Invariants
//
// The numbers are those of the design.
//
//   - (3) No handler starts without a won write. A read only names the revision to write
//     at. A write without an answer is repeated until it has one, or the incarnation ends.
//   - (4) No handler's context outlives its node's lease, and the lease is checked once
//     more between the won claim and the start: the process may have slept there.
//   - (5) A worker that lost its claim cannot complete: the end of an attempt is written at
//     the revision of its claim, which a takeover has moved.
//   - (6) The ack comes after the durable record, and only from the worker that wrote it or
//     read it as final. A worker that lost its claim sends nothing: an ack does not fence.
//   - (10) If a slot's owner lives, it is asked whether it holds the claim. If it does not,
//     the slot is taken over. Past the horizon the slot ends without an answer too.
//   - A guarded slot is admitted by its job's lock before its first claim, and leaves it
//     after its outcome is written. Only an outcome frees a lock: none needs a reset.
//   - What follows from an outcome is on the broker before the message is acked.
//   - A handler that does not return keeps its permit and its entry in the table until its
//     node falls silent: Go cannot end it.
//
// # Decisions
//
// docs/decisions has what was tried and rejected: 0001 claiming ahead, 0002 the deadline of
// a handler's context, 0030 locks of short slots, 0031 the machine, 0032 requests for
// messages, 0033 slots of live owners, 0034 what follows from an outcome.
package consumer
