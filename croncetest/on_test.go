package croncetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

func TestSettleWaitsForTheRunsThatMessagesStartWhateverTheClockShows(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]croncetest.Option{
		"at the default time": nil,
		"in the past":         {croncetest.At("2020-01-01T00:00:00Z")},
		"in the future":       {croncetest.At("2100-01-01T00:00:00Z")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := croncetest.New(t, options...)
			js, err := jetstream.New(f.Conn())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
				t.Fatal(err)
			}
			f.Handle(job.Job{Name: "ship", On: job.On{Stream: "ORDERS", Subject: "orders.paid"}}, func(context.Context, job.Run) error { return nil })
			f.Start(2)
			publish := func() {
				if _, err := js.Publish(t.Context(), "orders.paid", []byte(`{"order":1}`)); err != nil {
					t.Fatal(err)
				}
			}
			publish()
			f.Settle()
			if n := len(f.Runs("ship")); n != 1 {
				t.Fatalf("%d runs after the first message", n)
			}
			f.Advance(24 * time.Hour)
			publish()
			f.Settle()
			if n := len(f.Runs("ship")); n != 2 {
				t.Fatalf("%d runs after the second message", n)
			}
		})
	}
}
