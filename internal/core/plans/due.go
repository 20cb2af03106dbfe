package plans

import (
	"cmp"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Stretch is a part of a job's timeline: the slots of one schedule after After, up to and
// including Until. The bounds are instants, not due times.
type Stretch struct {
	Schedule *job.Schedule
	After    time.Time

	// Until is the last instant. Zero: no end.
	Until time.Time

	// Paused is true if the slots fell due while the job was paused. They are late at any
	// age.
	Paused bool

	// Since is when the stretch was added to the timeline, by the broker's clock. A producer
	// whose view of the registry is at least as new as Since knows the stretch.
	Since time.Time
}

// DueSlot is a slot that a producer has to publish, or a range of missed slots.
type DueSlot struct {
	At, Due time.Time

	// CaughtUp is true for a slot that is late and runs because of its job's catch-up policy.
	CaughtUp bool

	// Missed is 0 for a slot that runs. Otherwise this is a range of late slots that the
	// catch-up policy leaves out: Missed is their number, At the instant of the first, Last that
	// of the last, and Due is when the last of them fell due.
	Missed int
	Last   time.Time
}

// LateAfter is how long after its due time an unpublished slot becomes late. A job's catch-up policy
// decides about its late slots. A younger slot runs, unless it fell due during a pause.
const LateAfter = time.Minute

// Due returns the slots of a timeline that are due at now and run, oldest first, and after them
// the ranges of missed slots. Missed slots that follow one another are one range. horizon is how
// old a slot may be and still run.
//
// The timeline holds all stretches of one job, oldest first, since the catch-up policy applies to
// the late slots of the job and not of each plan. Cutting a stretch in two does not change the
// result.
func Due(timeline []Stretch, c job.CatchUp, now time.Time, horizon time.Duration) []DueSlot {
	var late, runs []DueSlot
	for _, s := range timeline {
		delay, edge := s.Schedule.Delay(), s.lateEdge(now)
		for _, at := range s.Schedule.Last(s.After, edge, max(1, mostRuns(c))) {
			late = append(late, DueSlot{At: at, Due: at.Add(delay)})
		}
		for at := range s.Schedule.Between(Later(s.After, edge), s.end(now)) {
			runs = append(runs, DueSlot{At: at, Due: at.Add(delay)})
		}
	}
	if len(late) == 0 {
		slices.SortStableFunc(runs, byInstant)
		return runs
	}
	slices.SortStableFunc(late, byInstant)
	newest := late[len(late)-1].At
	chosen := choose(c, late, now, horizon)
	if len(chosen) > 0 {
		newest = chosen[0].At.Add(-time.Second)
	}
	runs = append(runs, chosen...)
	slices.SortStableFunc(runs, byInstant)
	return append(runs, ranges(timeline, runs, now, newest)...)
}

func byInstant(a, b DueSlot) int { return a.At.Compare(b.At) }

// ranges returns the late slots up to the instant newest, none of which runs. A slot that runs ends
// a range: it is younger than the slots around it if its plan has a longer spread, or if they fell
// due in a pause.
func ranges(timeline []Stretch, runs []DueSlot, now, newest time.Time) (all []DueSlot) {
	after := time.Time{}
	for _, run := range runs {
		if run.At.After(newest) {
			break
		}
		if r, found := rangeOf(timeline, now, after, run.At); found {
			all = append(all, r)
		}
		after = run.At
	}
	if r, found := rangeOf(timeline, now, after, newest); found {
		all = append(all, r)
	}
	return all
}

// rangeOf returns the range of the late slots after one instant, up to and including another. It
// returns false if there are none.
func rangeOf(timeline []Stretch, now, after, until time.Time) (r DueSlot, found bool) {
	for _, s := range timeline {
		from, edge := Later(s.After, after), Earlier(s.lateEdge(now), until)
		last := s.Schedule.Last(from, edge, 1)
		if len(last) == 0 {
			continue
		}
		if first := s.Schedule.Next(from); r.Missed == 0 || first.Before(r.At) {
			r.At = first
		}
		r.Missed += s.Schedule.Count(from, edge)
		r.Last, r.Due = Later(r.Last, last[0]), Later(r.Due, last[0].Add(s.Schedule.Delay()))
	}
	return r, r.Missed > 0
}

// end returns the last instant of the stretch that may be due at now.
func (s Stretch) end(now time.Time) time.Time { return UpTo(now.Add(-s.Schedule.Delay()), s.Until) }

// lateEdge returns the last instant of the stretch that may be late at now: it was due more
// than LateAfter ago, or in a pause.
func (s Stretch) lateEdge(now time.Time) time.Time {
	if s.Paused {
		return s.end(now)
	}
	return s.end(now.Add(-LateAfter - time.Nanosecond))
}

// choose returns the late slots that the policy lets run. late is sorted, and holds at least as
// many of the newest late slots as the policy may choose.
func choose(c job.CatchUp, late []DueSlot, now time.Time, horizon time.Duration) (chosen []DueSlot) {
	within := horizon
	if c.Within > 0 {
		within = min(c.Within, horizon)
	}
	for _, slot := range codec.Last(late, mostRuns(c)) {
		if now.Sub(slot.At) <= within {
			slot.CaughtUp = true
			chosen = append(chosen, slot)
		}
	}
	return chosen
}

// mostRuns returns how many late slots the policy lets run.
func mostRuns(c job.CatchUp) int {
	switch {
	case c.Policy == job.CatchUpNone:
		return 0
	case c.Policy != job.CatchUpAll:
		return 1
	}
	return min(cmp.Or(c.Max, job.DefaultCatchUpMax), job.MaxCatchUp)
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// UpTo returns the earlier of a time and the end of a plan, a pause or a stretch. A zero end means
// that there is none.
func UpTo(t, end time.Time) time.Time {
	if end.IsZero() {
		return t
	}
	return Earlier(t, end)
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
