package core_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// at7 is the instant of the slot that delivered returns.
var at7 = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func delivered(published time.Time) core.Delivery {
	s := job.NewSlot("report", at7)
	return core.Delivery{Message: core.Message{Slot: s, Due: at7, JobRevision: 1}, Queue: "default", Count: 1, Published: published}
}

func seenAt(now time.Time, edit ...func(*core.View)) core.View {
	e := plans.Entry{Revision: 1, Time: at7.Add(-time.Hour), Definition: plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Overlap: job.OverlapAllow}}}
	v := core.View{Now: now, Self: "A", Horizon: 24 * time.Hour, Entry: &e, Handles: true}
	for _, f := range edit {
		f(&v)
	}
	return v
}

// The broker stored the slot before its instant, and the worker's clock may be two seconds fast. The
// worker waits until the instant has certainly come.
func TestSlotDoesNotStartBeforeItsInstantByAClockThatIsUncertain(t *testing.T) {
	t.Parallel()
	early := delivered(at7.Add(-2 * time.Second))
	for ahead, want := range map[time.Duration]core.Action{
		0: core.Later, time.Second: core.Later, 1999 * time.Millisecond: core.Later, 2 * time.Second: core.Start,
	} {
		v := seenAt(at7.Add(ahead), func(v *core.View) { v.Error = 2 * time.Second })
		step := core.Decide(early, v)
		if step.Action != want {
			t.Errorf("%v after the instant, give or take 2s: %v, want %v", ahead, step.Action, want)
		}
		if want == core.Later && step.Delay != 2*time.Second-ahead {
			t.Errorf("%v after the instant, give or take 2s: it waits for %v", ahead, step.Delay)
		}
	}
}

// A recorded start is never before the broker's timestamp on the message, if the difference is within
// the error of the clock.
func TestStartIsRecordedAfterThePublication(t *testing.T) {
	t.Parallel()
	for published, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond: 5 * time.Millisecond, -time.Second: 0, time.Minute: 0,
	} {
		v := seenAt(at7, func(v *core.View) { v.Error = 10 * time.Millisecond })
		step := core.Decide(delivered(at7.Add(published)), v)
		if step.Action == core.Start && !step.Record.Attempts[0].Started.Equal(at7.Add(want)) {
			t.Errorf("published %v after now: started at %v", published, step.Record.Attempts[0].Started)
		}
	}
}

// Invariant 7: a slot older than the horizon is recorded expired, or failed if it had attempts, and
// does not run. An outcome is final. So a slot does not end because of its age while the clock may be wrong.
func TestNothingEndsByAgeWhileTheClockIsImplausible(t *testing.T) {
	t.Parallel()
	record := func(state job.State) func(*core.View) {
		return func(v *core.View) {
			v.Record = &job.Record{Slot: job.NewSlot("report", at7), State: state, Node: "B", Attempt: 1, MaxAttempts: 3, RetryAt: at7,
				Attempts: []job.Attempt{{Number: 1, Node: "B", Started: at7, Finished: at7}}}
			v.OwnerDead = true
		}
	}
	deadline := func(v *core.View) {
		e := *v.Entry
		e.Job.Deadline = time.Minute
		v.Entry = &e
	}
	for name, tt := range map[string]struct {
		later time.Duration
		edit  func(*core.View)
		state job.State
	}{
		"a slot older than the horizon":  {48 * time.Hour, func(*core.View) {}, job.Expired},
		"a slot past its deadline":       {time.Hour, deadline, job.Expired},
		"a retry older than the horizon": {48 * time.Hour, record(job.Retrying), job.Failed},
		"a takeover beyond the horizon":  {48 * time.Hour, record(job.Running), job.Failed},
	} {
		d, v := delivered(at7), seenAt(at7.Add(tt.later), tt.edit)
		if step := core.Decide(d, v); step.Action != core.End || step.Record.State != tt.state {
			t.Errorf("%s: %+v by a clock that is believed, want %s", name, step, tt.state)
		}
		v.Implausible = true
		if step := core.Decide(d, v); step.Action != core.Later || step.Delay <= 0 || step.Delay > time.Minute || step.Reason == "" {
			t.Errorf("%s: %+v by an implausible clock, want it to wait, and why", name, step)
		}
	}
	v := seenAt(at7.Add(48*time.Hour), func(v *core.View) { v.Error = 24*time.Hour + time.Second })
	if step := core.Decide(delivered(at7), v); step.Action != core.Start {
		t.Errorf("a slot that may be younger than the horizon: %+v", step)
	}
}

// An attempt failed while the clock was two days ahead, and its retry delay was a minute. Since then
// the clock was set back to the right time.
func TestRetryDelayIsBoundedWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	ahead := at7.Add(48 * time.Hour)
	rec := job.Record{Slot: job.NewSlot("report", at7), State: job.Retrying, Attempt: 1, MaxAttempts: 3, RetryAt: ahead.Add(time.Minute),
		Attempts: []job.Attempt{{Number: 1, Started: ahead, Finished: ahead}}}
	if wait := core.RetryWait(rec, at7); wait != time.Minute {
		t.Errorf("it is given back for %v when the clock has stepped back, want the delay of 1m", wait)
	}
	if wait := core.RetryWait(rec, ahead.Add(50*time.Second)); wait != 10*time.Second {
		t.Errorf("it is given back for %v after 50s of its delay of 1m", wait)
	}
	withRecord := func(v *core.View) { v.Record = &rec }
	if step := core.Decide(delivered(at7), seenAt(at7.Add(time.Minute), withRecord)); step.Action != core.Start {
		t.Errorf("delivered again after the step: %+v, want its next attempt", step)
	}
	if step := core.Decide(delivered(at7), seenAt(ahead.Add(-time.Second), withRecord, func(v *core.View) { v.Horizon = 96 * time.Hour })); step.Action != core.Later || step.Delay > time.Minute {
		t.Errorf("by another node's clock, a second behind: %+v, want it to wait for its minute", step)
	}
	rec.RetryAt = ahead.Add(240 * time.Hour)
	if wait := core.RetryWait(rec, ahead); wait > time.Hour {
		t.Errorf("it is given back for %v at once: the clock may be set meanwhile", wait)
	}
}
