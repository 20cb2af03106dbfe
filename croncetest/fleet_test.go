package croncetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

const week = 7 * 24 * time.Hour

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func nothing(context.Context, job.Run) error { return nil }

func TestAdvanceOfAWeekRunsAnHourlyJobOnceForEachSlot(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t, croncetest.At("2026-03-23T00:00:00Z"))
	f.Handle(job.Job{Name: "report", Schedule: "@hourly"}, nothing)
	f.Start(2)
	began := time.Now()
	f.Advance(week)
	t.Logf("a week took %v", time.Since(began))
	f.CheckSucceeded("report")
	runs := f.Runs("report")
	for i, run := range runs {
		if want := at("2026-03-23T01:00:00Z").Add(time.Duration(i) * time.Hour); !run.Slot.At.Equal(want) || run.Attempt != 1 {
			t.Errorf("run %d is attempt %d of %s, want the first of %v", i, run.Attempt, run.Slot, want)
		}
	}
	if len(runs) != 168 || len(f.Records("report")) != 168 {
		t.Errorf("%d runs, %d records, want 168 of each", len(runs), len(f.Records("report")))
	}
	for _, r := range f.Records("report") {
		if late := r.Attempts[0].Started.Sub(r.Due); late < 0 || late > 20*time.Second || r.Published.Before(r.Due) {
			t.Errorf("%s, due at %v, was published at %v and started %v late", r.Slot, r.Due, r.Published, late)
		}
	}
	if now := f.Now(); now.Before(at("2026-03-30T00:00:00Z")) || now.After(at("2026-03-30T00:01:00Z")) {
		t.Errorf("afterwards it is %v", now)
	}
}

// On 29 March, the clocks in Berlin skip the hour from two to three, and a replica dies while
// it runs that slot. The slot still gets one outcome, from another replica.
func TestAdvanceOverDSTAndACrash(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t, croncetest.At("2026-03-26T00:00:00Z"))
	var crashed atomic.Bool
	gap := at("2026-03-29T01:00:00Z")
	f.Handle(job.Job{Name: "nightly", Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}, func(ctx context.Context, run job.Run) error {
		if run.Slot.At.Equal(gap) && crashed.CompareAndSwap(false, true) {
			f.Crash(f.Replica(run))
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	f.Start(2)
	f.Advance(week)
	f.CheckSucceeded("nightly")
	var slots []string
	for _, r := range f.Records("nightly") {
		slots = append(slots, fmt.Sprintf("%s %d", r.Slot.At.Format("02T15:04"), r.Attempt))
	}
	want := []string{"26T01:30 1", "27T01:30 1", "28T01:30 1", "29T01:00 2", "30T00:30 1", "31T00:30 1", "01T00:30 1"}
	if !slices.Equal(slots, want) {
		t.Errorf("slots %q, want %q", slots, want)
	}
	var gapRuns []job.Run
	for _, run := range f.Runs("nightly") {
		if run.Slot.At.Equal(gap) {
			gapRuns = append(gapRuns, run)
		}
	}
	if len(gapRuns) != 2 || gapRuns[1].Fence <= gapRuns[0].Fence || f.Replica(gapRuns[0]) == f.Replica(gapRuns[1]) {
		t.Errorf("the slot of the crash was run as %+v", gapRuns)
	}
}

func TestDowntimeIsMissedByTheCatchUpPolicy(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t)
	for name, policy := range map[string]job.CatchUpPolicy{"latest": job.CatchUpLatest, "all": job.CatchUpAll, "none": job.CatchUpNone} {
		f.Handle(job.Job{Name: name, Schedule: "@hourly", CatchUp: job.CatchUp{Policy: policy}, Overlap: job.OverlapAllow}, nothing)
	}
	f.Start(1)
	f.Advance(2 * time.Hour)
	f.Stop(0)
	f.Advance(5*time.Hour + 30*time.Minute)
	for _, name := range []string{"latest", "all", "none"} {
		if n := len(f.Records(name)); n != 2 {
			t.Errorf("without a replica %s has %d slots, want 2", name, n)
		}
	}
	f.Start(1)
	f.Settle()
	for name, want := range map[string]string{
		"latest": "succeeded succeeded missed missed missed missed succeeded",
		"all":    "succeeded succeeded succeeded succeeded succeeded succeeded succeeded",
		"none":   "succeeded succeeded missed missed missed missed missed",
	} {
		var states []string
		for _, r := range f.Records(name) {
			states = append(states, string(r.State))
		}
		if got := strings.Join(states, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestAdvanceWaitsForRetriesAndChains(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t)
	retry := job.Retry{Attempts: 3, Backoff: 10 * time.Millisecond, MaxBackoff: 10 * time.Millisecond}
	f.Handle(job.Job{Name: "extract", Schedule: "@daily", Retry: retry}, func(_ context.Context, run job.Run) error {
		if run.Attempt < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	f.Handle(job.Job{Name: "load", After: []string{"extract"}}, nothing)
	f.Handle(job.Job{Name: "never", Schedule: "@daily", Retry: retry}, func(context.Context, job.Run) error { return errors.New("no") })
	f.Start(1)
	f.Advance(48 * time.Hour)
	f.CheckSucceeded("extract")
	for name, want := range map[string]job.State{"load": job.Succeeded, "never": job.Failed} {
		records := f.Records(name)
		if len(records) != 2 || records[0].State != want || records[1].State != want {
			t.Errorf("%s: %+v", name, records)
		}
	}
	if n := len(f.Runs("never")); n != 6 {
		t.Errorf("what fails was started %d times, want 6", n)
	}
}

func TestAdvanceRunsAJobOnDemandOnlyWhenItIsTriggered(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t)
	f.Handle(job.Job{Name: "import", Schedule: job.OnDemand}, func(context.Context, job.Run) error { return nil })
	f.Handle(job.Job{Name: "load", After: []string{"import"}}, func(context.Context, job.Run) error { return nil })
	f.Start(2)
	f.Advance(7 * 24 * time.Hour)
	if records := f.Records("import"); len(records) > 0 {
		t.Errorf("it ran untriggered: %+v", records)
	}
	f.Trigger("import", "k", nil)
	f.Settle()
	for _, name := range []string{"import", "load"} {
		if records := f.Records(name); len(records) != 1 || records[0].Slot.Token != "k" || records[0].State != job.Succeeded {
			t.Errorf("%s: %+v", name, records)
		}
	}
}

func TestTriggeredRun(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t)
	var payload atomic.Pointer[string]
	f.Handle(job.Job{Name: "report", Schedule: "@daily"}, func(_ context.Context, run job.Run) error {
		text := string(run.Payload)
		payload.Store(&text)
		return nil
	})
	f.Start(1)
	f.Trigger("report", "k", []byte(`{"a":1}`))
	f.Trigger("report", "k", nil)
	f.Settle()
	if records := f.Records("report"); len(records) != 1 || records[0].Slot.ID() != "report:@k" || records[0].State != job.Succeeded || *payload.Load() != `{"a":1}` {
		t.Errorf("%+v", records)
	}
}

// A new release with another plan takes over from the old one.
func TestReleaseThatIsNewChangesTheJob(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t)
	f.Handle(job.Job{Name: "report", Schedule: "0 * * * *"}, nothing)
	f.Start(1)
	f.Advance(2*time.Hour + 10*time.Minute)
	f.Handle(job.Job{Name: "report", Schedule: "30 * * * *"}, nothing)
	f.Start(1)
	f.Stop(0)
	f.Advance(2 * time.Hour)
	f.CheckSucceeded("report")
	var slots []string
	for _, r := range f.Records("report") {
		slots = append(slots, r.Slot.At.Format("15:04"))
	}
	if want := []string{"01:00", "02:00", "02:30", "03:30"}; !slices.Equal(slots, want) {
		t.Errorf("slots at %q, want %q", slots, want)
	}
}

// recorder is a T that records failures, so that they do not fail the test.
type recorder struct {
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

type fatal struct{}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

// run calls f and then the cleanups, and returns the failures.
func (r *recorder) run(f func()) (failures string) {
	defer func() {
		if p := recover(); p != nil && p != (fatal{}) {
			panic(p)
		}
		for _, c := range slices.Backward(r.cleanups) {
			c()
		}
		failures = strings.Join(r.failures, "\n")
	}()
	f()
	return ""
}

func TestFleetFailsTheTestOfAMistake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(r *recorder)
		says []string
	}{
		"a slot that fails": {func(r *recorder) {
			f := croncetest.New(r)
			f.Handle(job.Job{Name: "bad", Schedule: "@daily"}, func(context.Context, job.Run) error { return job.Permanent(errors.New("no")) })
			f.Start(1)
			f.Advance(24 * time.Hour)
			f.CheckSucceeded("bad")
		}, []string{"bad:2026-01-02T00:00:00Z is failed: no"}},
		"no slot at all": {func(r *recorder) {
			f := croncetest.New(r)
			f.Handle(job.Job{Name: "rare", Schedule: "@yearly"}, nothing)
			f.Start(1)
			f.Advance(24 * time.Hour)
			f.CheckSucceeded("rare")
		}, []string{"job rare: no slot was due"}},
		"a handler that hangs": {func(r *recorder) {
			f := croncetest.New(r, croncetest.Patience(2*time.Second))
			f.Handle(job.Job{Name: "slow", Schedule: "@daily"}, func(ctx context.Context, _ job.Run) error {
				<-ctx.Done()
				return ctx.Err()
			})
			f.Start(1)
			f.Advance(24 * time.Hour)
		}, []string{"slow:2026-01-02T00:00:00Z is running on replica0-"}},
		"a job that is none": {func(r *recorder) {
			croncetest.New(r).Handle(job.Job{Name: "x", Schedule: "never"}, nothing)
		}, []string{`"never"`}},
		"a time that is none":   {func(r *recorder) { croncetest.New(r, croncetest.At("tomorrow")) }, []string{`At "tomorrow"`, "2026-03-28T00:00:00Z"}},
		"an option that is nil": {func(r *recorder) { croncetest.New(r, nil) }, []string{"invalid option: number 0 is nil"}},
		"an option of the replicas that is nil": {func(r *recorder) {
			f := croncetest.New(r, croncetest.Options(nil))
			f.Handle(job.Job{Name: "x", Schedule: "@daily"}, nothing)
			f.Start(1)
		}, []string{"invalid option: number"}},
		"no logger and no job": {func(r *recorder) {
			f := croncetest.New(r, croncetest.Logger(nil))
			f.Start(1)
			f.CheckSucceeded("x")
		}, []string{"job x: "}},
		"no patience":          {func(r *recorder) { croncetest.New(r, croncetest.Patience(0)) }, []string{"Patience 0s"}},
		"no such replica":      {func(r *recorder) { croncetest.New(r).Crash(0) }, []string{"no replica 0"}},
		"no such job":          {func(r *recorder) { croncetest.New(r).Trigger("x", "k", nil) }, []string{"x"}},
		"a lease that is none": {func(r *recorder) { croncetest.New(r, croncetest.Lease(time.Millisecond)) }, []string{"lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			said := r.run(func() { test.do(r) })
			for _, want := range test.says {
				if !strings.Contains(said, want) {
					t.Errorf("it says %q, want %q", said, want)
				}
			}
		})
	}
}
