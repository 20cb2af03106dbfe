// Package cronce schedules jobs from every replica of a service, without a
// leader, on NATS JetStream: "cron, once".
//
// Every replica computes the same slots (job + planned instant) and publishes
// them under the same name; the broker folds the copies, hands each slot to one
// worker, and a ledger of revision-checked writes records its one outcome.
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
// Every slot inside the horizon is published at least once, tried until it
// succeeds or its attempts are spent, and recorded with exactly one outcome.
// While its owner lives nobody else starts it. A handler may start twice for one
// slot if its worker dies or stalls in the middle: pass Run.Fence and the slot ID
// on to the place where the effect lands.
//
// The parts: package job says what and when, and is pure; producer turns due
// slots into messages, consumer messages into outcomes; kv is the broker's
// memory. See their doc.go for the design of each.
package cronce
