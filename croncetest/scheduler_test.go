package croncetest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

func TestOptionsReachEachReplica(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var failed []job.Failure
	wrapped := 0
	f := croncetest.New(t, croncetest.Options(
		cronce.WithErrorHook(func(one job.Failure) { mu.Lock(); defer mu.Unlock(); failed = append(failed, one) }),
		cronce.WithMiddleware(func(next job.Handler) job.Handler {
			return func(ctx context.Context, run job.Run) error {
				mu.Lock()
				wrapped++
				mu.Unlock()
				return next(ctx, run)
			}
		}),
	))
	type order struct{ Number int }
	f.Handle(job.Job{Name: "charge", Schedule: "@monthly"}, job.Typed(func(_ context.Context, _ job.Run, in order) error {
		if in.Number == 7 {
			return job.Permanent(errors.New("no such order"))
		}
		return nil
	}))
	f.Start(2)
	f.Trigger("charge", "7", []byte(`{"Number":7}`))
	f.Trigger("charge", "8", []byte(`{"Number":8}`))
	f.Trigger("charge", "typo", []byte(`{"Numbre":8}`))
	f.Settle()
	f.Stop(0)
	f.Stop(1) // its failures are reported
	states := map[string]job.State{}
	for _, r := range f.Slots("charge") {
		states[r.Slot.Token] = r.State
	}
	if states["7"] != job.Failed || states["8"] != job.Succeeded || states["typo"] != job.Failed {
		t.Errorf("states %v", states)
	}
	mu.Lock()
	defer mu.Unlock()
	if wrapped != 3 || len(failed) != 2 || len(f.Runs("charge")) != 3 {
		t.Errorf("%d calls of the middleware, %d of the hook, %d runs; want 3, 2 and 3", wrapped, len(failed), len(f.Runs("charge")))
	}
	for _, one := range failed {
		if !one.Final || one.Attempt != 1 {
			t.Errorf("%+v", one)
		}
	}
}

// Advance waits for the slots of jobs that have a handler, also of those that come and go while
// the replicas run.
func TestAdvanceFollowsHandleAndRemoveOfARunningScheduler(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t, croncetest.At("2026-11-22T00:00:00Z"))
	f.Handle(job.Job{Name: "always", Schedule: "@hourly"}, nothing)
	f.Start(2)
	f.Advance(time.Hour)
	late := job.Job{Name: "late", Schedule: "@hourly", Queue: "reports"}
	for i := range 2 {
		if err := f.Scheduler(i).Handle(late, nothing); err != nil {
			t.Fatal(err)
		}
	}
	f.Advance(2 * time.Hour)
	f.Once("late")
	if got := f.Planned("late"); !slices.Equal(got, []time.Time{at("2026-11-22T02:00:00Z"), at("2026-11-22T03:00:00Z")}) {
		t.Errorf("slots of the late job: %v", got)
	}
	if _, err := f.Scheduler(0).Trigger(t.Context(), "late", cronce.TriggerOptions{Key: "k"}); err != nil {
		t.Error(err)
	}
	f.Settle()
	for i := range 2 {
		if err := f.Scheduler(i).Remove("late"); err != nil {
			t.Fatal(err)
		}
	}
	before := len(f.Runs("late"))
	if err := f.Scheduler(0).Client().Remove(t.Context(), "late", client.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Advance(2 * time.Hour)
	f.Once("always")
	if got := len(f.Runs("late")); got != before {
		t.Errorf("%d runs after Remove", got-before)
	}
}
