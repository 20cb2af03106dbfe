// Package migrate holds the Go code of docs/migration.md, so that the compiler checks it.
package migrate

import (
	"context"
	"encoding/json"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/robfig/cron/v3"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

// RobfigBefore schedules a job with robfig/cron.
func RobfigBefore(ctx context.Context) error {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	c := cron.New(cron.WithLocation(berlin), cron.WithChain(cron.SkipIfStillRunning(cron.DefaultLogger)))
	_, err = c.AddFunc("0 7 * * MON-FRI", func() {
		if err := sendReport(context.Background(), time.Now()); err != nil {
			log.Print(err)
		}
	})
	if err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

// RobfigAfter schedules the same job with Cronce.
func RobfigAfter(ctx context.Context, nc *nats.Conn) error {
	s, err := cronce.New(ctx, nc)
	if err != nil {
		return err
	}
	err = s.Handle(job.Job{Name: "report", Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin"},
		func(ctx context.Context, run job.Run) error {
			return sendReport(ctx, run.Slot.At) // the time it was planned for, whenever it runs
		})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// AsynqAfter replaces a scheduler, a server and a client of asynq.
func AsynqAfter(ctx context.Context, nc *nats.Conn) error {
	s, err := cronce.New(ctx, nc, cronce.WithConcurrency(10))
	if err != nil {
		return err
	}
	err = s.Handle(job.Job{
		Name: "report", Schedule: "0 7 * * MON-FRI", Queue: "reports",
		Payload: json.RawMessage(`{"format":"pdf"}`), Retry: job.Retry{Attempts: 6},
	}, func(ctx context.Context, run job.Run) error {
		if err := makeReport(ctx, run.Payload); err != nil {
			return job.Permanent(err) // asynq.SkipRetry; any other error is retried
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Enqueue replaces asynq's client.Enqueue with a TaskID and ProcessIn.
func Enqueue(ctx context.Context, s *cronce.Scheduler) error {
	_, err := s.Trigger(ctx, "report", cronce.TriggerOptions{
		Key: "invoice-7", At: time.Now().Add(time.Hour), Payload: json.RawMessage(`{"format":"html"}`),
	})
	return err
}

func sendReport(context.Context, time.Time) error { return nil }

func makeReport(context.Context, json.RawMessage) error { return nil }
