// Package cronce schedules jobs from every replica of a service, without a
// leader, on NATS JetStream: "cron, once".
//
// Every replica computes the same slots (job + planned instant) and publishes
// them under the same name. The broker keeps one copy of each and hands it to one
// worker. A ledger of revision-checked writes records its one outcome.
//
//	s, err := cronce.New(ctx, nc)
//	if err != nil { ... }
//	err = s.Handle(job.Job{Name: "report", Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin"},
//		func(ctx context.Context, run job.Run) error {
//			return sendReport(ctx, run.Slot.At)
//		})
//	if err != nil { ... }
//	return s.Run(ctx)
//
// Every replica of the service does the same. A [Scheduler] that runs is a node of the
// fleet: it has a name, and heartbeats prove to the others that it is alive. Package
// croncetest runs a fleet in tests, with a clock that the test sets; package metrics measures
// a Scheduler for Prometheus.
//
// # Handlers
//
// A handler returns nil when its work is done. [job.Permanent] ends the slot as
// failed; [job.RetryAfter] sets the delay of the retry; any other error, and a panic,
// is retried with backoff, up to the job's attempts. The handler's context ends when the
// node can no longer prove that it is alive ([job.ErrLeaseLost]), at the job's timeout,
// when an operator cancels the slot or a newer one replaces it, and when the
// replica stops: [context.Cause] returns the reason. A handler that ignores its context
// ends only with its process: see [WithEndOnStuck]. The handler gets a [job.Run]; its
// Slot.At is the planned time, whenever the handler runs.
//
// [HandleFunc] decodes the payload into a type of yours, strictly. [WithMiddleware] wraps all
// handlers, [WithErrorHook] reports each failed attempt. [Scheduler.Handle] and [Scheduler.Remove] may
// be called while Run runs. [WithConcurrency] and [WithQueueConcurrency] bound how many handlers run at
// once.
//
// # The promise, and its edge
//
// A slot may run up to the horizon after its instant: 24 hours, or job.Settings.Horizon.
// Every slot inside the horizon is published at least once, tried until it succeeds or its
// attempts are spent, and recorded with exactly one outcome. While its owner lives no other
// worker starts it. A handler may start twice for one slot if its worker dies or stalls in the
// middle. So pass Run.Fence and the slot ID on to the system that the handler changes: it can
// then reject a stale attempt.
//
// # The parts
//
// Package job has the definitions and is pure; producer turns due slots into messages,
// consumer turns messages into outcomes, and kv stores both on the broker. [Scheduler.Run]
// joins them, in internal/fleet/replica. The documentation of each package gives its design.
// docs/concepts.md describes the whole, docs/protocol.md what is stored.
package cronce
