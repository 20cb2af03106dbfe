package migrate

import (
	"context"
	"encoding/json"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

type ReportArgs struct {
	Format string `json:"format"`
}

// RiverAfter replaces a worker and a periodic job of River.
func RiverAfter(ctx context.Context, nc *nats.Conn) error {
	s, err := cronce.New(ctx, nc, cronce.WithQueueConcurrency("reports", 10))
	if err != nil {
		return err
	}
	err = cronce.HandleFunc(s, job.Job{
		Name: "report", Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin", Queue: "reports",
		Payload: json.RawMessage(`{"format":"pdf"}`), Retry: job.Retry{Attempts: 5},
	}, func(ctx context.Context, run job.Run, args ReportArgs) error {
		if err := makeReport(ctx, []byte(args.Format)); err != nil {
			return job.Permanent(err) // river.JobCancel; any other error is retried
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// RiverInsert replaces an insert of River.
func RiverInsert(ctx context.Context, s *cronce.Scheduler) error {
	run, err := s.Trigger(ctx, "report", cronce.TriggerOptions{
		Key: "order-7", At: time.Now().Add(time.Hour), Payload: json.RawMessage(`{"format":"html"}`),
	})
	if err != nil {
		return err
	}
	log.Printf("%s is ordered; new: %v", run.ID(), run.New)
	return nil
}
