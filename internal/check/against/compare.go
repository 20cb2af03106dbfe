package against

import (
	"slices"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Slot is a slot of the ledger. Its time is its due time.
type Slot struct {
	Job   string
	ID    string
	Due   time.Time
	State job.State

	// Ran is true if an attempt was started. Shadow is true if that attempt did not run the action.
	Ran, Shadow bool
}

// Kind is which side has a run.
type Kind string

const (
	OnlyOurs   Kind = "only_ours"
	OnlyTheirs Kind = "only_theirs"
)

// Difference is a run that only one side has.
type Difference struct {
	Kind Kind   `json:"difference"`
	Job  string `json:"job"`

	// ID and State are those of the slot. For a run of the log, that is the nearest slot. It did not
	// run, or it belongs to another line; then State is empty. Both are empty if no slot is near.
	ID     string    `json:"id,omitempty"`
	State  job.State `json:"state,omitempty"`
	Shadow bool      `json:"shadow,omitempty"`

	// Time is the slot's due time, or the time of the line.
	Time time.Time `json:"time"`

	// Line is the line of the log. Zero: there is none.
	Line int `json:"line,omitempty"`

	// Text says in words why only one side has the run. It may be empty.
	Text string `json:"text,omitempty"`
}

// Sum is the comparison of one job.
type Sum struct {
	Job string `json:"job"`

	// Also are other jobs that have the same command, so that the log does not distinguish them
	// from this one. The counts are for all of these jobs together.
	Also []string `json:"also,omitempty"`

	Both       int `json:"both"`
	OnlyOurs   int `json:"only_ours"`
	OnlyTheirs int `json:"only_theirs"`

	// Twice is how many runs of Both were not shadows: both sides did the work.
	Twice int `json:"twice,omitempty"`

	// Offset is by how much the log's time is later than the slot's due time. Nil: Both is 0.
	Offset *Offset `json:"offset_ms,omitempty"`

	// NotJudged is how many runs of the log have no slot and were before the window: the job was not
	// yet in the registry, or the ledger may have removed its slots.
	NotJudged int `json:"not_judged,omitempty"`
}

// Offset is a distribution, in milliseconds.
type Offset struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

// Window is the time to judge, from From, inclusive, to To, exclusive.
type Window struct{ From, To time.Time }

func (w Window) has(t time.Time) bool { return !t.Before(w.From) && t.Before(w.To) }

// Job is one job, or several that the log does not distinguish.
type Job struct {
	Names []string

	// Window is the time that is judged. A run outside it may belong to a slot inside, and a slot
	// outside to a run inside. A slot without a line is a difference only in Ours, which may end
	// earlier: the log may end before the slot's line.
	Window, Ours Window

	Slots []Slot // in any order
	Runs  []Run  // in any order
}

// Compare compares the runs of a job with its slots. It calls found with each difference, in
// order of time.
func Compare(j Job, tolerance time.Duration, found func(Difference)) Sum {
	slices.SortFunc(j.Slots, func(a, b Slot) int { return a.Due.Compare(b.Due) })
	slices.SortStableFunc(j.Runs, func(a, b Run) int { return a.Time.Compare(b.Time) })
	sum := Sum{Job: j.Names[0], Also: j.Names[1:]}
	best, unmatched := match(j, tolerance)
	var differences []Difference
	for _, r := range unmatched {
		switch d := (Difference{Kind: OnlyTheirs, Job: sum.Job, Time: r.Time, Line: r.Line}); {
		case r.Time.Before(j.Window.From):
			sum.NotJudged++
		case j.Window.has(r.Time):
			if r.at >= 0 {
				d.Job, d.ID, d.Text = j.Slots[r.at].Job, j.Slots[r.at].ID, "the slot has another line already"
			}
			differences = append(differences, d)
		}
	}
	var offsets []time.Duration
	for i, s := range j.Slots {
		r := best[i]
		switch {
		case r == nil && s.Ran && j.Ours.has(s.Due):
			differences = append(differences, Difference{Kind: OnlyOurs, Job: s.Job, ID: s.ID, State: s.State, Shadow: s.Shadow, Time: s.Due})
		case r == nil || !j.Window.has(s.Due) && !j.Window.has(r.Time):
		case !s.Ran:
			differences = append(differences, Difference{Kind: OnlyTheirs, Job: s.Job, ID: s.ID, State: s.State, Time: r.Time, Line: r.Line, Text: "the slot did not run"})
		default:
			sum.Both++
			if !s.Shadow {
				sum.Twice++
			}
			offsets = append(offsets, r.Time.Sub(s.Due))
		}
	}
	slices.SortStableFunc(differences, func(a, b Difference) int { return a.Time.Compare(b.Time) })
	for _, d := range differences {
		if d.Kind == OnlyOurs {
			sum.OnlyOurs++
		} else {
			sum.OnlyTheirs++
		}
		found(d)
	}
	sum.Offset = offset(offsets)
	return sum
}

// unmatchedRun is a run that is not the nearest run of any slot.
type unmatchedRun struct {
	Run
	at int // index of the nearest slot, which has a nearer run; -1: no slot is near
}

// match assigns each run to the nearest slot. best has the nearest run of each slot.
func match(j Job, tolerance time.Duration) (best []*Run, unmatched []unmatchedRun) {
	best = make([]*Run, len(j.Slots))
	for i := range j.Runs {
		r := &j.Runs[i]
		at := nearest(j.Slots, r.Time)
		for next := at + 1; at >= 0 && best[at] != nil && next < len(j.Slots) && j.Slots[next].Due.Equal(j.Slots[at].Due); next++ {
			at = next // two jobs with one command may have slots of one instant
		}
		switch {
		case at < 0 || away(j.Slots[at], r) > tolerance:
			unmatched = append(unmatched, unmatchedRun{*r, -1})
		case best[at] == nil:
			best[at] = r
		case away(j.Slots[at], r) < away(j.Slots[at], best[at]):
			unmatched = append(unmatched, unmatchedRun{*best[at], at})
			best[at] = r
		default:
			unmatched = append(unmatched, unmatchedRun{*r, at})
		}
	}
	return best, unmatched
}

// nearest returns the index of the slot that is nearest in time, the earlier of two, or -1. Of
// slots that are due at the same time it returns the first.
func nearest(slots []Slot, t time.Time) int {
	i, _ := slices.BinarySearchFunc(slots, t, func(s Slot, t time.Time) int { return s.Due.Compare(t) })
	switch {
	case i > 0 && (i == len(slots) || t.Sub(slots[i-1].Due) <= slots[i].Due.Sub(t)):
		i--
	case i == len(slots):
		return -1
	}
	for i > 0 && slots[i-1].Due.Equal(slots[i].Due) {
		i--
	}
	return i
}

func away(s Slot, r *Run) time.Duration { return r.Time.Sub(s.Due).Abs() }

func offset(all []time.Duration) *Offset {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return &Offset{ms(all[0]), ms(all[len(all)/2]), ms(all[len(all)-1])}
}
