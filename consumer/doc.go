// Package consumer runs the slots of one queue. It receives the slot messages, claims the
// slots, runs their handlers, records the outcomes, and answers the messages.
//
// Programs get a Consumer from package cronce, or from "cronce run". [New] is for programs
// with a broker of their own: [Config] says what it needs. The documentation of package
// cronce says what a handler may rely on.
//
// # Design
//
// Each delivered message becomes a task, which is a state machine (task.go). The method step
// does the work of the current state and sets the next one. Its parameter says whether it may
// block. If a step would have to block and may not, the task moves to a goroutine of the pool
// and takes the step there. If a job's lock admits a slot at once and the handler succeeds, the
// task goes through these states:
//
//	arrived            the message is parsed, and the slot is entered in the table
//	loading            the definition is looked up, and the record is read if there may be one
//	deciding           core.Decide chooses the next action
//	entering           the job's lock admits the slot
//	deciding
//	preparing          the record of the claim is prepared,
//	writing            and sent
//	decisionAnswered   the ledger has accepted the claim
//	running            the handler runs
//	writing            the record of its result is sent
//	resultAnswered     the ledger has accepted it
//	following          alerts, and the slots of the jobs that run after this one, are published
//	responding         the message is acked
//	leaving            the slot leaves the lock
//
// Other slots also go through proving, waiting, readingWhole, writingWhole or concludingWhole.
//
// core.Decide holds the claim rules and does no I/O. It chooses the next action whenever the task is
// deciding. The steps entering and writing send their write and return. The callback that gets
// the broker's answer takes the next step, so no goroutine waits for the answer. The steps
// writingWhole and concludingWhole, and leaving if it has to write the lock, occupy a goroutine
// until the broker answers. A slot that goes through the states above needs a goroutine for its
// handler. Afterwards it needs one only to log its success, to publish what follows, or to write
// its lock.
//
//	pull.go           asks the sources for as many messages as the limiter allows
//	task.go           the state machine: states, steps, and panics
//	decide.go         reads what a decision needs, and asks core.Decide
//	lock.go           enters and leaves a job's lock; locks.go caches the locks that this consumer wrote
//	attempt.go        runs the handler, under a context that ends with the lease
//	record.go         writes claims, the results of attempts, and the record of a slot with shards
//	follow.go         publishes what follows from an outcome, and answers the broker
//	waitlist.go       keeps the slots that wait for their lock
//	limiter.go        bounds the handlers of a queue that run at once in the process
//	table.go          holds every slot that the process works on, each at most once
//	report.go         publishes events, logs, measures and traces
//	handler_output.go takes what a handler reports: output, log lines, progress, a result
//	consumer.go       configures, starts and stops all of this
//
// In internal, package inflight marks unanswered messages as in progress every third of a
// lease, and package pool keeps idle goroutines for reuse.
//
// # Invariants
//
// The numbers are those of package internal/core.
//
//   - (3) No handler starts before the ledger has accepted the worker's claim. A read alone
//     permits nothing: it returns the revision that the write expects. The worker repeats an
//     unanswered claim until it is answered or the node's context ends.
//   - (4) No handler's context outlives its node's lease, unless the job has
//     job.LeaseLostFinish. The worker checks the lease once more after its claim is stored and
//     before the handler starts: the process may have been suspended in between.
//   - (5) A worker that lost its claim cannot complete: the end of an attempt is written at
//     the revision of its claim, which a takeover has changed.
//   - (6) The ack comes after the durable record, and only from the worker that wrote it or
//     read it as final. A worker that lost its claim sends nothing: the broker would accept its
//     ack, and the message of the new owner would be gone.
//   - (10) If the owner of a claim is alive, the worker asks the owner whether it still holds
//     the claim. If the owner says no, the worker takes the slot over. Past the horizon, the
//     worker takes the slot over even without an answer, and ends it.
//   - If a job limits how many of its slots run at once, the job has a lock, which admits each
//     slot before the slot's first claim. The slot leaves the lock after its outcome is written.
//     If its worker dies in between, the next slot that asks the lock finds the outcome and takes
//     the ended slot out. So an operator never has to reset a lock.
//   - The worker publishes what follows from an outcome before it acks the message.
//   - Go cannot end a handler that does not return. Such a handler keeps its permit and its
//     entry in the table as long as the process lives.
//
// # Decisions
//
// docs/decisions has what was tried and rejected: 0001 claiming ahead, 0002 the deadline of
// a handler's context, 0030 locks of short slots, 0031 the machine, 0032 requests for
// messages, 0033 slots of live owners, 0034 what follows from an outcome.
package consumer
