package cronce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

// exampleT replaces *testing.T, which examples do not have.
type exampleT struct{ cleanups []func() }

func (t *exampleT) Helper()                           {}
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append([]func(){f}, t.cleanups...) }
func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleT) end() {
	for _, f := range t.cleanups {
		f()
	}
}

// Order is the payload of a job.
type Order struct {
	Customer string `json:"customer"`
	Items    []Item `json:"items"`
}

type Item struct {
	SKU   string `json:"sku"`
	Price int    `json:"price"`
}

func handleOrders(s *cronce.Scheduler) error {
	return cronce.HandleFunc(s, job.Job{Name: "charge", Schedule: job.OnDemand},
		func(ctx context.Context, run job.Run, order Order) error {
			fmt.Println("charging", order.Customer, "for", order.Items[0].SKU)
			return nil
		})
}

// The payload is decoded into an Order. A payload with a misspelled member fails the slot at once.
func ExampleHandleFunc() {
	t := &exampleT{}
	defer t.end()
	f := croncetest.New(t)
	f.Start(1)
	s := f.Scheduler(0) // in your program: cronce.New

	if err := handleOrders(s); err != nil {
		fmt.Println(err)
	}
	f.Trigger("charge", "order-1", []byte(`{"customer": "ann", "items": [{"sku": "tea", "price": 5}]}`))
	f.Settle()
	f.Trigger("charge", "order-2", []byte(`{"customer": "bob", "items": [{"sku": "tea", "prise": 5}]}`))
	f.Settle()

	fmt.Println(f.Records("charge")[1].Error)
	// Output:
	// charging ann for tea
	// invalid payload: items[0].prise: unknown member: did you mean "price"?
}

// logged logs how long each attempt took.
func logged(next job.Handler) job.Handler {
	return func(ctx context.Context, run job.Run) error {
		began := time.Now()
		err := next(ctx, run)
		slog.InfoContext(ctx, "attempt ended", "slot", run.Slot.ID(), "took", time.Since(began), "error", err)
		return err
	}
}

// limited gives each attempt at most a minute, also of jobs without a timeout.
func limited(next job.Handler) job.Handler {
	return func(ctx context.Context, run job.Run) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return next(ctx, run)
	}
}

// Here logged is outside of limited, so it sees the error of an attempt that took too long.
func ExampleWithMiddleware() {
	t := &exampleT{}
	defer t.end()
	f := croncetest.New(t, croncetest.Options(cronce.WithMiddleware(logged, limited)))
	f.Handle(job.Job{Name: "sync", Schedule: "@hourly"}, func(ctx context.Context, _ job.Run) error {
		_, bounded := ctx.Deadline()
		fmt.Println("bounded:", bounded)
		return nil
	})
	f.Start(1)
	f.Advance(time.Hour)
	// Output: bounded: true
}

// report sends a failure to a service that collects errors.
func report(f job.Failure) {
	if errors.Is(f.Err, job.ErrStopping) {
		return // this process is being shut down
	}
	fmt.Println(f.Slot.ID(), "attempt", f.Attempt, "final:", f.Final, f.Err)
}

func ExampleWithErrorHook() {
	t := &exampleT{}
	defer t.end()
	f := croncetest.New(t, croncetest.At("2026-11-22T06:00:00Z"), croncetest.Options(cronce.WithErrorHook(report)))
	f.Handle(job.Job{
		Name: "report", Schedule: "@hourly", Retry: job.Retry{Attempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond},
	}, func(_ context.Context, run job.Run) error {
		if run.Attempt == 2 {
			panic("no paper")
		}
		return errors.New("printer is busy")
	})
	f.Start(1)
	f.Advance(time.Hour)
	f.Stop(0)
	// Output:
	// report:2026-11-22T07:00:00Z attempt 1 final: false printer is busy
	// report:2026-11-22T07:00:00Z attempt 2 final: true panic: no paper
}

func addCustomer(s *cronce.Scheduler, name string) error {
	return s.Handle(job.Job{Name: "sync-" + name, Schedule: "@hourly"}, func(_ context.Context, run job.Run) error {
		fmt.Println("syncing", name)
		return nil
	})
}

func removeCustomer(s *cronce.Scheduler, name string) error { return s.Remove("sync-" + name) }

// A service adds a job for each of its customers, and removes it when the customer leaves.
func ExampleScheduler_Remove() {
	t := &exampleT{}
	defer t.end()
	f := croncetest.New(t)
	f.Start(1)
	s := f.Scheduler(0) // it runs

	if err := addCustomer(s, "ann"); err != nil {
		fmt.Println(err)
	}
	f.Advance(time.Hour)
	if err := removeCustomer(s, "ann"); err != nil { // on each replica
		fmt.Println(err)
	}
	f.Advance(time.Hour)
	// Output: syncing ann
}
