package verify

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Report is the summary of a check.
type Report struct {
	From, To time.Time

	// Jobs is how many jobs in the registry were checked.
	Jobs int

	// Slots is how many slots should exist, by the plans, and were judged.
	Slots int

	// Outcomes counts the slots that have an outcome, InProgress those that wait, run or will
	// be retried, without a problem.
	Outcomes   map[job.State]int
	InProgress int

	// Beside counts the slots among these that no plan has: triggered and backfilled runs, and
	// slots of jobs whose plans are not judged.
	Beside int

	Missing, NoOutcome, Doubled, Early int

	Lateness  Lateness
	NotJudged []NotJudged
}

// Problems is how many problems there are.
func (r Report) Problems() int { return r.Missing + r.NoOutcome + r.Doubled + r.Early }

// OK reports whether there is no problem.
func (r Report) OK() bool { return r.Problems() == 0 }

// NotJudged says what was not judged, and why.
type NotJudged struct {
	Reason string

	// Expected is true if there was nothing to judge because nothing was due.
	Expected bool

	// Jobs is how many jobs it affects, Names the first of them.
	Jobs  int
	Names []string

	// Slots is how many slots it affects. 0: not known.
	Slots int
}

// maxNames bounds how many jobs are named with a reason.
const maxNames = 20

// leftOut is a NotJudged whose counts still grow. last is the job that was counted last.
type leftOut struct {
	NotJudged
	last string
}

func (c *Check) leaveOut(name, reason string, slots int) {
	n := c.notJudged[reason]
	if n == nil {
		n = &leftOut{NotJudged: NotJudged{Reason: reason}}
		c.notJudged[reason] = n
	}
	n.Slots += slots
	if n.last == name {
		return
	}
	n.last = name
	n.Jobs++
	if len(n.Names) < maxNames {
		n.Names = append(n.Names, name)
	}
}

// nothingDue is leaveOut for a job without slots to judge.
func (c *Check) nothingDue(name, reason string) {
	c.leaveOut(name, reason, 0)
	c.notJudged[reason].Expected = true
}

// Report returns the summary.
func (c *Check) Report() Report {
	r := Report{
		From: c.cfg.From, To: c.cfg.To,
		Outcomes: c.outcomes, Beside: c.beside, Lateness: c.lateness.lateness(),
	}
	for p := range c.Problems() {
		switch p.Kind {
		case Missing:
			r.Missing++
		case Doubled:
			r.Doubled++
		case Early:
			r.Early++
		case NoOutcome:
			r.NoOutcome++
			// A waiting message of a slot that no plan has is not counted below.
			if p.State != job.Pending || p.Slot.Token == "" && c.timelines[p.Slot.Job].unrecorded.has(p.Slot.At.Unix()) {
				r.InProgress--
			}
		}
	}
	for _, l := range c.timelines {
		r.Jobs += count(l.entry != nil)
		r.Slots += l.slots
		r.InProgress += len(l.unsettled)
		for unix := range l.unrecorded.all() {
			r.InProgress += count(l.waiting.has(unix) || within(l.coming, unix))
		}
	}
	for _, n := range slices.SortedFunc(maps.Values(c.notJudged), func(x, y *leftOut) int { return cmp.Compare(x.Reason, y.Reason) }) {
		r.NotJudged = append(r.NotJudged, n.NotJudged)
	}
	return r
}
