package core

import (
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Stretch is a part of a job's timeline: the slots of one schedule after After,
// up to and including Until. The bounds are instants, not due times.
type Stretch struct {
	Schedule *job.Schedule
	After    time.Time

	// Until ends the stretch. Zero: it has no end.
	Until time.Time

	// Paused says that the slots fell due during a pause of the job. They are
	// late at any age.
	Paused bool

	// Since is when the stretch came to be, by the broker's clock: whoever knew
	// the registry of then knew it.
	Since time.Time
}

// DueSlot is a slot that a producer has to publish, and as what.
type DueSlot struct {
	At, Due time.Time

	// CaughtUp marks a slot that is late and runs by its catch-up policy.
	CaughtUp bool

	// Missed is 0 for a slot to run and 1 for one that the policy leaves out.
	Missed int

	// Range marks the first of a range of missed slots: Missed of them, the
	// last at Last.
	Range bool
	Last  time.Time
}

// MaxMissed is how many late slots of a job are published one by one, the newest
// of them; the older ones share one message.
const MaxMissed = 1000

// Lateness says which slots a catch-up policy is asked about.
type Lateness struct {
	// Late is how long after its due time a slot is still simply published.
	Late time.Duration

	// Horizon is how far back a slot may lie and still run, at most.
	Horizon time.Duration
}

// Due returns the slots of the timeline, given oldest stretch first, that are
// due at now, and what they are to be published as. Slots no later than l.Late
// run, unless they fell due during a pause; of the others the policy chooses.
// They come oldest first, except that a
// range of missed slots comes last: it must be published after all the others
// (see the producer's package comment).
//
// All of one job's stretches are judged together, since "the newest missed slot"
// is a word about the job, not about one of its plans. Cutting a stretch in two
// changes nothing.
func Due(timeline []Stretch, c job.CatchUp, now time.Time, l Lateness) []DueSlot {
	var late, young []DueSlot
	for _, s := range timeline {
		delay := s.Schedule.Delay()
		edge := s.lateEdge(now, l)
		for _, at := range s.Schedule.Last(s.After, edge, MaxMissed) {
			late = append(late, DueSlot{At: at, Due: at.Add(delay), Missed: 1})
		}
		for at := range s.Schedule.Between(latest(s.After, edge), s.end(now)) {
			young = append(young, DueSlot{At: at, Due: at.Add(delay)})
		}
	}
	late = codec.Last(late, MaxMissed)
	older, some := folded(timeline, late, now, l)
	choose(c, late, now, l.Horizon)
	due := append(late, young...)
	slices.SortStableFunc(due, func(a, b DueSlot) int { return a.At.Compare(b.At) })
	if some {
		due = append(due, older)
	}
	return due
}

// end is the last instant of the stretch that is due at now.
func (s Stretch) end(now time.Time) time.Time {
	end := now.Add(-s.Schedule.Delay())
	if !s.Until.IsZero() && s.Until.Before(end) {
		return s.Until
	}
	return end
}

// lateEdge is the last instant of the stretch that is late at now: due more than
// l.Late ago, or in a pause.
func (s Stretch) lateEdge(now time.Time, l Lateness) time.Time {
	if s.Paused {
		return s.end(now)
	}
	return s.end(now.Add(-l.Late - time.Nanosecond))
}

// choose turns those of the late slots that may still run into caught-up ones.
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

// mostRuns returns how many late slots the policy lets run, at most.
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

// folded is the range of the late slots that are older than kept, the newest
// ones; false when there are none.
func folded(timeline []Stretch, kept []DueSlot, now time.Time, l Lateness) (DueSlot, bool) {
	if len(kept) < MaxMissed {
		return DueSlot{}, false
	}
	r := DueSlot{Range: true}
	for _, s := range timeline {
		edge := earliest(s.lateEdge(now, l), kept[0].At.Add(-time.Second))
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
