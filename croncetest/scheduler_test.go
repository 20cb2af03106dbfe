package croncetest_test

import (
	"context"
	"errors"
	"io"
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
		cronce.WithNamespace("shop"), cronce.WithNodeName("web"), // the fleet overrides them
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
	if run := f.Trigger("charge", "7", []byte(`{"Number":7}`)); run.ID() != "charge:@7" || !run.New {
		t.Errorf("Trigger returns %+v", run)
	}
	f.Trigger("charge", "8", []byte(`{"Number":8}`))
	f.Trigger("charge", "typo", []byte(`{"Numbre":8}`))
	f.Settle()
	f.Stop(0)
	f.Stop(1) // its failures are reported
	states := map[string]job.State{}
	for _, r := range f.Records("charge") {
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

// The options of the program bound its handlers, and its client shows their progress.
func TestClientShowsHowFarHandlersAreWhileTheyRun(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t, croncetest.Options(cronce.WithQueueConcurrency("reports", 1)))
	release := make(chan struct{})
	f.Handle(job.Job{Name: "extract", Schedule: job.OnDemand, Queue: "reports", Overlap: job.OverlapAllow}, func(ctx context.Context, run job.Run) error {
		_, _ = io.WriteString(run.Output, "reading customers\n")
		run.Progress(3, 7, "customers")
		select {
		case <-release:
		case <-ctx.Done():
		}
		return run.SetResult(map[string]int{"rows": 7})
	})
	f.Start(1)
	c := f.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	results, err := c.TriggerMany(ctx, "extract", []client.TriggerOptions{{Key: "a"}, {Key: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	var now client.RunningAttempt
	for now.Progress == nil { // the handler of one of the two waits
		for _, r := range results {
			switch live, err := c.Running(ctx, r.ID()); {
			case ctx.Err() != nil:
				t.Fatal("no progress:", err)
			case err != nil && !errors.Is(err, job.ErrUnknown): // a busy machine answers late
				t.Fatal(err)
			case live.Progress != nil:
				now = live
			}
		}
	}
	if now.Progress.Done != 3 || now.Progress.Total != 7 || now.Progress.Text != "customers" || now.Output != "reading customers\n" {
		t.Errorf("it has reported %+v %+v", now, now.Progress)
	}
	if n := len(f.Runs("extract")); n != 1 {
		t.Errorf("%d handlers run at once in a queue for one", n)
	}
	close(release)
	for _, r := range results {
		if d, err := r.Wait(ctx); err != nil || d.State != job.Succeeded || string(d.Result) != `{"rows":7}` || d.Output != "reading customers\n" {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// Advance waits for the slots of jobs that have a handler, also of jobs that are added and removed
// while the replicas run.
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
	f.CheckSucceeded("late")
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
	f.CheckSucceeded("always")
	if got := len(f.Runs("late")); got != before {
		t.Errorf("%d runs after Remove", got-before)
	}
}
