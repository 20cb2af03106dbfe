package plans

import (
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

// DueSlot is a slot that a producer has to publish, and how.
type DueSlot struct {
	At, Due time.Time

	// CaughtUp is true for a slot that is late and runs because of its job's catch-up policy.
	CaughtUp bool

	// Missed is 0 for a slot that runs, and 1 for one that the catch-up policy leaves out.
	Missed int

	// Range is true for the first of a range of missed slots. Missed is then their number,
	// and Last the instant of the last one.
	Range bool
	Last  time.Time
}

// MaxMissed is how many late slots of a job have a message each. These are the newest ones; the
// older ones share one message.
const MaxMissed = 1000

// LateAfter is how long after its due time an unpublished slot becomes late. A job's catch-up policy
// decides about its late slots. A younger slot runs, unless it fell due during a pause.
const LateAfter = time.Minute

// Due returns the slots of a timeline that are due at now, oldest first, and how to publish
// them. A range of missed slots is last: it must be published after all others (see
// docs/decisions/0013). horizon is how old a slot may be and still run.
//
// The timeline holds all stretches of one job, oldest first, since the catch-up policy applies to
// the late slots of the job and not of each plan. Cutting a stretch in two does not change the
// result.
func Due(timeline []Stretch, c job.CatchUp, now time.Time, horizon time.Duration) []DueSlot {
	var late, young []DueSlot
	for _, s := range timeline {
		delay := s.Schedule.Delay()
		edge := s.lateEdge(now)
		for _, at := range s.Schedule.Last(s.After, edge, MaxMissed) {
			late = append(late, DueSlot{At: at, Due: at.Add(delay), Missed: 1})
		}
		for at := range s.Schedule.Between(Later(s.After, edge), s.end(now)) {
			young = append(young, DueSlot{At: at, Due: at.Add(delay)})
		}
	}
	late = codec.Last(late, MaxMissed)
	older, found := olderRange(timeline, late, now)
	choose(c, late, now, horizon)
	due := append(late, young...)
	slices.SortStableFunc(due, func(a, b DueSlot) int { return a.At.Compare(b.At) })
	if found {
		due = append(due, older)
	}
	return due
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

// choose marks the late slots that the policy lets run as caught up.
func choose(c job.CatchUp, late []DueSlot, now time.Time, horizon time.Duration) {
	within := horizon
	if c.Within > 0 {
		within = min(c.Within, horizon)
	}
	for i := max(0, len(late)-mostRuns(c)); i < len(late); i++ {
		if now.Sub(late[i].At) <= within {
			late[i].CaughtUp, late[i].Missed = true, 0
		}
	}
}

// mostRuns returns how many late slots the policy lets run.
func mostRuns(c job.CatchUp) int {
	switch {
	case c.Policy == job.CatchUpNone:
		return 0
	case c.Policy != job.CatchUpAll:
		return 1
	case c.Max == 0:
		return job.DefaultCatchUpMax
	}
	return min(c.Max, MaxMissed)
}

// olderRange returns the range of the late slots that are older than those in kept. It returns
// false if there are none.
func olderRange(timeline []Stretch, kept []DueSlot, now time.Time) (DueSlot, bool) {
	if len(kept) < MaxMissed {
		return DueSlot{}, false
	}
	r := DueSlot{Range: true}
	for _, s := range timeline {
		edge := Earlier(s.lateEdge(now), kept[0].At.Add(-time.Second))
		newest := s.Schedule.Last(s.After, edge, 1)
		if len(newest) == 0 {
			continue
		}
		if r.Missed == 0 {
			r.At = s.Schedule.Next(s.After)
			r.Due = r.At.Add(s.Schedule.Delay())
		}
		r.Missed += s.Schedule.Count(s.After, edge)
		r.Last = newest[0]
	}
	return r, r.Missed > 0
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
