package croncetest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

// exampleT replaces *testing.T in the examples, which have none.
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

// A nightly job at 02:30, in the week in which the clocks skip that time on Sunday, and a replica
// that dies while it runs that slot.
func Example() {
	t := &exampleT{} // t *testing.T
	defer t.end()

	f := croncetest.New(t, croncetest.At("2026-03-26T00:00:00Z"))
	var crashed atomic.Bool
	f.Handle(job.Job{Name: "nightly", Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}, func(ctx context.Context, run job.Run) error {
		if run.Slot.At.Weekday() == time.Sunday && crashed.CompareAndSwap(false, true) {
			f.Crash(f.Replica(run))
		}
		return ctx.Err()
	})
	f.Start(2)
	f.Advance(7 * 24 * time.Hour)
	f.CheckSucceeded("nightly")

	for _, r := range f.Records("nightly") {
		fmt.Println(r.Slot.At.Format(time.RFC3339), r.State, "at attempt", r.Attempt)
	}
	// Output:
	// 2026-03-26T01:30:00Z succeeded at attempt 1
	// 2026-03-27T01:30:00Z succeeded at attempt 1
	// 2026-03-28T01:30:00Z succeeded at attempt 1
	// 2026-03-29T01:00:00Z succeeded at attempt 2
	// 2026-03-30T00:30:00Z succeeded at attempt 1
	// 2026-03-31T00:30:00Z succeeded at attempt 1
	// 2026-04-01T00:30:00Z succeeded at attempt 1
}

// While no replica runs, Advance sets the clock to the end at once, and slots are missed. The job's
// catch-up policy decides which of them run.
func ExampleFleet_Stop() {
	t := &exampleT{} // t *testing.T
	defer t.end()

	f := croncetest.New(t, croncetest.At("2026-11-21T00:00:00Z"))
	f.Handle(job.Job{Name: "sync", Schedule: "@hourly"}, func(context.Context, job.Run) error { return nil })
	f.Start(1)
	f.Advance(time.Hour)
	f.Stop(0)
	f.Advance(3*time.Hour + 30*time.Minute) // no replica runs
	f.Start(1)
	f.Settle()

	for _, r := range f.Records("sync") {
		fmt.Println(r.Slot.At.Format("15:04"), r.State)
	}
	// Output:
	// 01:00 succeeded
	// 02:00 missed
	// 03:00 missed
	// 04:00 succeeded
}

// The same key is the same run.
func ExampleFleet_Trigger() {
	t := &exampleT{} // t *testing.T
	defer t.end()

	f := croncetest.New(t)
	f.Handle(job.Job{Name: "invoice", Schedule: job.OnDemand}, func(_ context.Context, run job.Run) error {
		fmt.Printf("%s with %s\n", run.Slot.ID(), run.Payload)
		return nil
	})
	f.Start(2)
	f.Trigger("invoice", "order-7", []byte(`{"order":7}`))
	f.Trigger("invoice", "order-7", []byte(`{"order":7}`))
	f.Settle()
	// Output:
	// invoice:@order-7 with {"order":7}
}

// The records have the outputs and the results of handlers.
func ExampleFleet_Records() {
	t := &exampleT{} // t *testing.T
	defer t.end()

	f := croncetest.New(t)
	f.Handle(job.Job{Name: "extract", Schedule: job.OnDemand}, func(_ context.Context, run job.Run) error {
		fmt.Fprintln(run.Output, "reading customers")
		run.Progress(3, 7, "customers")
		run.Logger.Warn("a customer has no address", "customer", 711)
		return run.SetResult(map[string]int{"rows": 7})
	})
	f.Handle(job.Job{Name: "load", After: []string{"extract"}}, func(_ context.Context, run job.Run) error {
		fmt.Printf("loading %s\n", run.Results["extract"])
		return nil
	})
	f.Start(2)
	f.Trigger("extract", "monday", nil)
	f.Settle()

	extracted := f.Records("extract")[0]
	first, _, _ := strings.Cut(extracted.Output, "\n")
	fmt.Printf("%s: %q, result %s\n", extracted.State, first, extracted.Result)
	// Output:
	// loading {"rows":7}
	// succeeded: "reading customers", result {"rows":7}
}

// The example of the README: a week in which the clocks skip 02:30 on one night.
func Example_week() {
	t := &exampleT{} // t *testing.T
	defer t.end()
	nightly := func(context.Context, job.Run) error { return nil }

	f := croncetest.New(t, croncetest.At("2026-03-26T00:00:00Z"))
	f.Handle(job.Job{Name: "nightly", Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}, nightly)
	f.Start(2)
	f.Advance(7 * 24 * time.Hour)
	f.CheckSucceeded("nightly") // every slot has succeeded

	fmt.Println(len(f.Records("nightly")), "slots")
	// Output: 7 slots
}
