package producer

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

var epoch = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func testAgenda(base position) *agenda {
	return newAgenda(job.DefaultHorizon, base, slog.New(slog.DiscardHandler))
}

// fill puts n jobs on an agenda, with that many expressions, each of one slot an hour.
func fill(a *agenda, n, expressions int) {
	for i := range n {
		e := plans.Entry{Revision: uint64(i + 1), Time: epoch}
		e.Job = job.Job{Name: fmt.Sprint("job", i), Schedule: fmt.Sprintf("%d %d * * * *", i%60, i%expressions/60%60)}
		a.apply(plans.RegistryEvent{Name: e.Job.Name, Revision: e.Revision, Entry: e}, epoch)
	}
	a.apply(plans.RegistryEvent{Ready: true, Revision: uint64(n)}, epoch)
}

func TestJobsOfOneScheduleShareOneHeapEntry(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	fill(a, 6000, 300)
	if len(a.heap) != 300 || len(a.schedules) != 300 {
		t.Fatalf("%d heap entries and %d schedules for 300 expressions", len(a.heap), len(a.schedules))
	}
	total := 0
	for now := epoch; now.Before(epoch.Add(2*time.Hour + time.Second)); now = now.Add(time.Second) {
		for done := false; !done; {
			var slots []dueSlot
			slots, done = a.due(nil, now, 7) // a limit that cuts groups in pieces
			total += len(slots)
			for _, s := range slots {
				if !s.At.Equal(now) {
					t.Fatalf("slot %v returned at %v", s.At, now)
				}
			}
		}
	}
	// The first slot of jobs that fire on the hour is the one after epoch.
	if total != 6000*2 {
		t.Errorf("%d slots in two hours, want 12000", total)
	}
	if len(a.heap) != 300 || len(a.groups) != 300 {
		t.Errorf("%d heap entries and %d groups afterwards", len(a.heap), len(a.groups))
	}
}

func TestAgendaForgetsRemovedJobs(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	fill(a, 100, 10)
	for i := range 100 {
		a.apply(plans.RegistryEvent{Name: fmt.Sprint("job", i), Revision: uint64(101 + i), Deleted: true}, epoch)
	}
	if len(a.jobs)+len(a.schedules)+len(a.groups)+len(a.heap) != 0 {
		t.Errorf("left: %d jobs, %d schedules, %d groups, %d heap entries", len(a.jobs), len(a.schedules), len(a.groups), len(a.heap))
	}
}

// A newer watermark moves lines forward, except those of plans that it does not know.
func TestAgendaSkipsWhatAWatermarkCovers(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	fill(a, 60, 60)
	e := plans.Entry{Revision: 61, Time: epoch.Add(time.Minute)}
	e.Job = job.Job{Name: "new", Schedule: "30 * * * * *"}
	a.apply(plans.RegistryEvent{Name: "new", Revision: 61, Entry: e}, epoch)
	a.skipTo(position{epoch.Add(time.Hour), 60, epoch})
	slots, done := a.due(nil, epoch.Add(time.Hour), 1000)
	if !done || len(slots) != 3 || slots[2].Missed != 57 {
		t.Fatalf("%v, want the new job's newest slots, and a range of 57", slots)
	}
	for _, s := range slots {
		if s.def.name != "new" {
			t.Errorf("%s was covered", s.def.name)
		}
	}
}

func TestTheRegistrysRevisionIsStoredOnceNothingIsPending(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	fill(a, 10, 1)
	edit := func(revision uint64) {
		e := plans.Entry{Revision: revision, Time: epoch}
		e.Job = job.Job{Name: "new", Schedule: "@hourly"}
		a.apply(plans.RegistryEvent{Name: "new", Revision: revision, Entry: e}, epoch)
	}
	settled := func(want uint64) {
		t.Helper()
		if p := a.position(epoch.Add(time.Hour)); p.revision != want {
			t.Errorf("revision %d may be stored, want %d", p.revision, want)
		}
	}
	edit(12) // as a watch that catches up delivers it: revision 11 may be of a later job
	settled(10)
	edit(13)
	a.apply(plans.RegistryEvent{Settled: true, Revision: 13}, epoch)
	settled(13)
	edit(15)
	settled(13)
	a.apply(plans.RegistryEvent{Settled: true, Revision: 16}, epoch) // no event of revision 16 is left
	settled(16)
}

// A tick with a thousand due slots among a million jobs on a thousand expressions, and the
// memory of such an agenda.
func BenchmarkDueAmongAMillionJobs(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const jobs = 1_000_000
	bd := testAgenda(position{})
	started := time.Now()
	fill(bd, jobs, 1000)
	loaded := time.Since(started)
	runtime.GC()
	runtime.ReadMemStats(&after)
	now, slots := epoch, 0
	for b.Loop() {
		now = now.Add(time.Second)
		for done := false; !done; {
			var due []dueSlot
			due, done = bd.due(nil, now, 4*maxChunk)
			slots += len(due)
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/jobs, "B/job")
	b.ReportMetric(loaded.Seconds(), "s-to-load")
	b.ReportMetric(float64(slots)/float64(b.N), "slots/op")
	runtime.KeepAlive(bd)
}

// The pause that ends is a stretch without slots, and the first of the plan's lines. The
// plan outlives it. What fell due before the agenda received all of this is returned, even
// if another edit follows at once.
func TestLinesGoOnWhenTheFirstStretchOfTheirPlanHasNoSlots(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	at := func(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }
	put := func(revision uint64, s float64, to time.Time) {
		e := plans.Entry{Revision: revision, Time: at(s)}
		e.Job = job.Job{Name: "j", Schedule: "*/10 * * * * *"}
		e.Definition.Since, e.Paused = epoch, to.IsZero()
		e.Pauses = []plans.Window{{From: at(.1), To: to}}
		a.apply(plans.RegistryEvent{Name: "j", Revision: revision, Entry: e}, at(s))
	}
	put(1, 1, time.Time{})
	a.apply(plans.RegistryEvent{Ready: true, Revision: 1}, at(1))
	a.due(nil, at(33), 10)
	put(2, 8, at(8)) // received late, like the next
	put(3, 23, at(8))
	slots, _ := a.due(nil, at(33), 10)
	var due []string
	for _, s := range slots {
		due = append(due, s.At.Sub(epoch).String())
	}
	if want := []string{"10s", "20s", "30s"}; !slices.Equal(due, want) {
		t.Errorf("returned: %v, want %v", due, want)
	}
}

// An entry that was written by hand may have two equal plans.
func TestStretchesThatAreAlikeHaveALineEach(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	e := plans.Entry{Revision: 1, Time: epoch}
	e.Job = job.Job{Name: "j", Schedule: "*/10 * * * * *"}
	plan := plans.PastPlan{Plan: e.Job.Plan(), From: epoch, To: epoch.Add(time.Minute)}
	e.Past = []plans.PastPlan{plan, plan}
	for e.Revision = 1; e.Revision < 4; e.Revision++ {
		a.apply(plans.RegistryEvent{Name: "j", Revision: e.Revision, Entry: e}, epoch)
		if lines := a.jobs["j"].lines(); len(lines) != 3 {
			t.Fatalf("%d lines at revision %d, want 3", len(lines), e.Revision)
		}
	}
	a.apply(plans.RegistryEvent{Name: "j", Revision: 4, Deleted: true, Time: epoch}, epoch)
	if len(a.schedules)+len(a.groups) != 0 {
		t.Errorf("left: %d schedules, %d groups", len(a.schedules), len(a.groups))
	}
}

// A job is removed and created again, twice, and its slots are not acknowledged. A watch that catches up
// shows only the new definitions.
func TestReturnedSlotsOfEarlierPlansAreJudgedInTheirOrder(t *testing.T) {
	t.Parallel()
	a := testAgenda(position{})
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	put := func(revision uint64, s int, schedule string) {
		e := plans.Entry{Revision: revision, Time: at(s)}
		e.Job = job.Job{Name: "j", Schedule: schedule}
		a.apply(plans.RegistryEvent{Name: "j", Revision: revision, Entry: e}, at(s))
	}
	put(1, 0, "*/10 * * * * *")
	a.apply(plans.RegistryEvent{Ready: true, Revision: 1}, at(0))
	first, _ := a.due(nil, at(11), 10)
	put(2, 12, "*/7 * * * * *")
	second, _ := a.due(nil, at(15), 10)
	put(3, 16, "@hourly")
	if len(first) != 1 || len(second) != 1 || len(a.jobs["j"].lines()) != 1 {
		t.Fatalf("returned %d and %d slots, and %d lines are left; want one each", len(first), len(second), len(a.jobs["j"].lines()))
	}
	a.takeBack(first[0])
	a.takeBack(second[0])
	slots, _ := a.due(nil, at(120), 10)
	if len(slots) != 2 {
		t.Fatalf("%d slots are returned again, want 2", len(slots))
	}
	for i, want := range []dueSlot{second[0], first[0]} {
		if got := slots[i]; !got.At.Equal(want.At) || got.line != want.line || got.CaughtUp != (i == 0) {
			t.Errorf("slot %d: %v, caught up: %v, of its own line: %v", i, got.At, got.CaughtUp, got.line == want.line)
		}
	}
}
