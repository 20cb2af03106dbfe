package plans_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// edit advances the time by a minute and stores the result of f for the entry, if f changed it.
func (r *registry) edit(f func(plans.Entry, string) (plans.Definition, bool)) (changed bool) {
	r.t.Helper()
	d, changed := f(*r.entry, "B")
	r.now = r.now.Add(time.Minute)
	if changed {
		r.store(d)
	}
	return changed
}

func TestAPauseIsBoundedByTheBrokersTimestamps(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("0 7 * * *"), "file", "A", false)
	since := r.entry.Since()
	if r.edit(plans.Resume) {
		t.Error("a job that is not paused was resumed")
	}
	var want []plans.Window
	for range 3 {
		if !r.edit(plans.Pause) || !r.entry.Paused {
			t.Fatal("not paused")
		}
		from := r.now
		if r.edit(plans.Pause) {
			t.Error("a paused job was paused")
		}
		r.apply(report(fmt.Sprintf("%d 8 * * *", r.now.Minute())), "file", "A", true) // an edit does not change the pauses
		if open := append(want, plans.Window{From: from}); !slices.Equal(r.entry.Pauses, open) {
			t.Errorf("pauses %v, want %v", r.entry.Pauses, open)
		}
		if !r.edit(plans.Resume) || r.entry.Paused {
			t.Fatal("not resumed")
		}
		want = append(want, plans.Window{From: from, To: r.now})
		r.apply(report(fmt.Sprintf("%d 9 * * *", r.now.Minute())), "file", "A", true)
		if !slices.Equal(r.entry.Pauses, want) {
			t.Errorf("pauses %v, want %v", r.entry.Pauses, want)
		}
	}
	if first := r.entry.Plans()[0].From; !first.Equal(since) {
		t.Errorf("the first plan begins at %v, want %v: a pause must not move it", first, since)
	}
	for range 100 {
		r.edit(plans.Pause)
		r.edit(plans.Resume)
	}
	if len(r.entry.Pauses) != 50 || !r.entry.Pauses[49].To.Equal(r.now) {
		t.Errorf("%d pauses are kept, want the newest 50", len(r.entry.Pauses))
	}
}

// If a person sets or removes "paused" in the stored entry, the job is paused or resumed.
func TestPauseThatIsEditedByHandTakesEffect(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("0 7 * * *"), "file", "A", false)
	value, err := json.Marshal(r.entry.Definition)
	if err != nil {
		t.Fatal(err)
	}
	paused := append(slices.Clone(value[:len(value)-1]), `,"paused":true}`...)
	e, err := plans.DecodeEntry(paused, 2, r.now)
	if err != nil || len(e.Pauses) != 1 || e.Pauses[0] != (plans.Window{From: r.now}) {
		t.Fatalf("pauses %v: %v", e.Pauses, err)
	}
}

func TestStretchesAreTheSlotsOfAPlanByWhenTheyFallDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
		instants := rapid.SliceOfNDistinct(rapid.IntRange(0, 600_000), 3, 10, rapid.ID).Draw(t, "ms")
		slices.Sort(instants)
		at := func(i int) time.Time { return base.Add(time.Duration(instants[i]) * time.Millisecond) }
		plan := plans.PastPlan{Plan: job.Plan{Schedule: "*/7 * * * * *", Spread: 30 * time.Second}}
		from := rapid.IntRange(0, len(instants)-2).Draw(t, "from")
		plan.From, plan.To = at(from), at(rapid.IntRange(from+1, len(instants)-1).Draw(t, "to"))
		var e plans.Entry
		for i := rapid.IntRange(0, 1).Draw(t, "first"); i < len(instants); i += 2 {
			w := plans.Window{From: at(i)}
			if e.Paused = i+1 == len(instants); !e.Paused {
				w.To = at(i + 1)
			}
			e.Pauses = append(e.Pauses, w)
		}
		s, err := job.ParseSchedule("report", plan.Plan)
		if err != nil {
			t.Fatal(err)
		}
		got := map[time.Time]bool{}
		for _, part := range e.Stretches(plan, s) {
			for slot := range s.Between(part.After, part.Until) {
				if _, twice := got[slot]; twice {
					t.Errorf("%v is of two stretches", slot)
				}
				if w, in := e.PausedAt(slot.Add(s.Delay())); in != part.Paused || in && !w.To.Equal(part.Since) {
					t.Errorf("%v is of stretch %v, and of pause %v", slot, part, w)
				}
				got[slot] = part.Paused
			}
		}
		for slot := range s.Between(plan.From, plan.To) {
			w, in := e.PausedAt(slot.Add(s.Delay()))
			if _, ok := got[slot]; ok == (in && w.To.IsZero()) {
				t.Errorf("%v: in a stretch %v, in the pause %v", slot, ok, w)
			}
			delete(got, slot)
		}
		for slot := range got {
			t.Errorf("%v is none of the plan's", slot)
		}
	})
}

func TestIfResumedLeavesOutAPastPlanThatCannotBeComputed(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.apply(report("* * * * *"), "file", "A", false)
	r.now = r.now.Add(time.Second)
	r.apply(report("*/2 * * * *"), "file", "A", false)
	r.entry.Past[0].Plan.Schedule = "@full-moon"
	r.now = r.now.Add(time.Second)
	r.edit(plans.Pause)
	if missed, runs, err := r.entry.IfResumed(r.now.Add(412*time.Minute), 0); missed != 206 || runs != 1 || err != nil {
		t.Errorf("%d missed, %d would run, want 206 and 1: %v", missed, runs, err)
	}
}

func TestIfResumedCountsWhatAResumeWouldRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		catchUp      job.CatchUp
		pause        time.Duration
		missed, runs int
	}{
		{job.CatchUp{}, 412 * time.Minute, 412, 1},
		{job.CatchUp{Policy: job.CatchUpNone}, 412 * time.Minute, 412, 0},
		{job.CatchUp{Policy: job.CatchUpAll}, 412 * time.Minute, 412, 100},
		{job.CatchUp{Policy: job.CatchUpAll, Within: 10 * time.Minute}, 412 * time.Minute, 412, 10},
		{job.CatchUp{}, 30 * time.Second, 0, 0},
		{job.CatchUp{}, 72 * time.Hour, 72 * 60, 1},
		{job.CatchUp{Policy: job.CatchUpAll, Max: 1000}, 72 * time.Hour, 72 * 60, 1000},
	} {
		r := newRegistry(t)
		j := report("* * * * *")
		j.CatchUp = tt.catchUp
		r.apply(j, "file", "A", false)
		r.now = r.now.Add(time.Second)
		if missed, runs, err := r.entry.IfResumed(r.now.Add(tt.pause), 0); missed != 0 || runs != 0 || err != nil {
			t.Errorf("not paused: %d missed, %d run: %v", missed, runs, err)
		}
		r.edit(plans.Pause)
		missed, runs, err := r.entry.IfResumed(r.now.Add(tt.pause), 0)
		if missed != tt.missed || runs != tt.runs || err != nil {
			t.Errorf("%v after %v: %d missed, %d would run, want %d and %d: %v", tt.catchUp, tt.pause, missed, runs, tt.missed, tt.runs, err)
		}
	}
}
