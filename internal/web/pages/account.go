package pages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// The states of a cell, besides those of its slot.
const (
	cellHole    = "hole"    // the slot is missing, or should have an outcome and has none
	cellOdd     = "odd"     // the slot has an outcome, and something else is wrong
	cellComing  = "coming"  // the slot is not due yet
	cellPaused  = "paused"  // the slot falls into a pause
	cellUnknown = "unknown" // the slot has no record, and verify cannot judge it
)

// accountKey names an account: the job, and the range.
type accountKey struct {
	Job      string
	From, To time.Time
	Zone     string
}

// account has the state of each slot that should exist in a range.
type account struct {
	// Groups are the rows of the strip: days, or the hours of a day.
	Groups []group

	// Counts counts the slots of the schedule by the states of their cells. Beside counts the
	// others, such as triggered runs, by their states.
	Counts map[string]int
	Beside map[job.State]int

	// Problems are what verify has found, at most maxProblems; Found is how many there are.
	Problems   []client.SlotProblem
	Found      int
	Repairable int // how many of them a repair would offer again
	NotJudged  []client.NotJudged

	// Took is how long runs took, and Late how late slots started: each the newest maxSamples.
	Took, Late []sample

	// Rows are slots of the range that have a record or wait, the newest maxRows.
	Rows []slotRow
}

const (
	maxProblems = 50
	maxSamples  = 200
	maxRows     = 50

	// maxCells bounds the cells of a group. If there are more slots, a cell has several.
	maxCells = 60

	// maxSlots bounds the slots of an account.
	maxSlots = 100_000
)

// group is a row of cells.
type group struct {
	Label string
	Day   time.Time // when the day or the hour begins
	Cells []cell
	Apart int // for the first day of a calendar: how many days of its week come before it; else 0
}

// cell is a slot that should exist, or several of them.
type cell struct {
	At    time.Time
	State string // the worst one of its slots
	ID    string // of the slot; "": the cell has several
	Title string
}

// badness orders the states of a cell, the worst last.
var badness = []string{
	cellUnknown, cellComing, cellPaused, string(job.Succeeded), string(job.Cancelled), string(job.Skipped), string(job.Pending), string(job.Running),
	string(job.Missed), string(job.Retrying), string(job.Expired), string(job.Failed), cellOdd, cellHole,
}

// newAccount compares the slots that should exist with those that do, as cronce verify does.
// Its labels have the times of the zone loc.
func newAccount(ctx context.Context, c *client.Client, k accountKey, calendar bool, loc *time.Location) (account, error) {
	a := account{Counts: map[string]int{}, Beside: map[job.State]int{}}
	u, err := c.Next(ctx, k.Job)
	if err != nil {
		return a, err
	}
	found, err := a.verify(ctx, c, k, u.Now)
	if err != nil {
		return a, err
	}
	states, err := a.read(ctx, c, k)
	if err != nil {
		return a, err
	}
	var cells []cell
	for at, paused := range u.Planned(k.From, k.To) {
		if len(cells) >= maxSlots {
			return a, fmt.Errorf("%w range: it has more than %d slots: choose a shorter one", job.ErrInvalid, maxSlots)
		}
		id := job.NewSlot(k.Job, at).ID()
		state, has := states[id]
		delete(states, id)
		cl := cell{At: at, ID: id}
		problem, bad := found[id]
		switch {
		case bad && isHole(problem):
			cl.State = cellHole
		case bad:
			cl.State = cellOdd
		case has:
			cl.State = string(state)
		case at.After(u.Now.Add(-10 * time.Second)):
			cl.State = cellComing
		default:
			cl.State = cellUnknown
		}
		if paused && !has && !bad {
			cl.State = cellPaused
		}
		a.Counts[cl.State]++
		cells = append(cells, cl)
	}
	a.Groups = groups(cells, k, loc)
	for _, state := range states {
		a.Beside[state]++
	}
	for i := range a.Groups {
		a.Groups[i].fold(loc)
		if calendar && i == 0 { // the first day of the month
			a.Groups[i].Apart = (int(a.Groups[i].Day.Weekday()) + 6) % 7
		}
	}
	return a, nil
}

// verify finds what is wrong with the slots of the range, up to now.
func (a *account) verify(ctx context.Context, c *client.Client, k accountKey, now time.Time) (map[string]client.SlotProblem, error) {
	found := map[string]client.SlotProblem{}
	to := plans.Earlier(k.To, now)
	if !to.After(k.From) {
		return found, nil
	}
	sum, err := c.Verify(ctx, client.VerifyOptions{From: k.From, To: to, Jobs: []string{k.Job}}, func(p client.SlotProblem) error {
		if len(found) < maxSlots {
			found[p.ID] = p
		}
		if len(a.Problems) < maxProblems {
			a.Problems = append(a.Problems, p)
		}
		if isRepairable(p) {
			a.Repairable++
		}
		return nil
	})
	a.Found, a.NotJudged = sum.Problems(), sum.NotJudged
	return found, err
}

// isHole reports whether the slot is missing, or should have an outcome and has none.
func isHole(p client.SlotProblem) bool {
	return p.Problem == client.ProblemMissing || p.Problem == client.ProblemNoOutcome
}

// isRepairable reports whether a repair would offer the slot again.
func isRepairable(p client.SlotProblem) bool { return p.BeyondRepair == "" && isHole(p) }

// read returns the states of the job's slots in the range, by their IDs.
func (a *account) read(ctx context.Context, c *client.Client, k accountKey) (map[string]job.State, error) {
	states := map[string]job.State{}
	for s, err := range c.Slots(ctx, client.SlotFilter{Job: k.Job, Since: k.From}) {
		if len(states) == maxSlots {
			break
		}
		switch {
		case exchange.IsUnreadable(err):
			continue // verify reports it
		case err != nil:
			return nil, err
		case !s.When().Before(k.To):
			continue
		}
		s.Output = ""
		row := newSlotRow(s)
		states[s.ID] = s.State
		a.Rows = appendBounded(a.Rows, maxRows, row)
		if !s.Started.IsZero() && !s.Finished.IsZero() && s.State.Final() {
			a.Took = appendBounded(a.Took, maxSamples, sample{row.At, s.State, row.Took})
		}
		if !s.First.IsZero() && !s.Due.IsZero() {
			a.Late = appendBounded(a.Late, maxSamples, sample{row.At, s.State, row.Late})
		}
	}
	a.Rows, a.Took, a.Late = codec.Last(a.Rows, maxRows), codec.Last(a.Took, maxSamples), codec.Last(a.Late, maxSamples)
	slices.Reverse(a.Rows)
	return states, nil
}

// appendBounded appends v, and drops old values so that at most twice most are left. The newest
// most values are always among them.
func appendBounded[T any](all []T, most int, v T) []T {
	if len(all) >= 2*most {
		all = append(all[:0], codec.Last(all, most)...)
	}
	return append(all, v)
}

// fewSlots is how many slots of a day fit into one row. If there are more, each hour has a row.
const fewSlots = 48

// groups puts cells, which are in the order of time, into days, or into the hours of one day.
// Without cells it returns no group.
func groups(cells []cell, k accountKey, loc *time.Location) (all []group) {
	if len(cells) == 0 {
		return nil
	}
	from := k.From.In(loc)
	hours := k.To.Sub(k.From) <= 25*time.Hour && len(cells) > fewSlots
	next := func(at time.Time) time.Time { return time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, loc) }
	label := func(at time.Time) string { return at.Format("Mon 2 Jan") }
	if hours {
		next = func(at time.Time) time.Time { return at.Add(time.Hour) }
		label = func(at time.Time) string { return at.Format("15:04") }
	}
	for at := from; at.Before(k.To); at = next(at) {
		end := next(at)
		n := 0
		for n < len(cells) && cells[n].At.Before(end) {
			n++
		}
		all = append(all, group{Label: label(at), Day: at, Cells: cells[:n:n]})
		cells = cells[n:]
	}
	return all
}

// fold gives the cells their titles. If there are too many, it makes one cell of several
// neighbours.
func (g *group) fold(loc *time.Location) {
	each := (len(g.Cells) + maxCells - 1) / maxCells
	if each > 1 {
		var folded []cell
		for part := range slices.Chunk(g.Cells, each) {
			folded = append(folded, foldCells(part, loc))
		}
		g.Cells = folded
		return
	}
	for i := range g.Cells {
		c := &g.Cells[i]
		c.Title = c.At.In(loc).Format("Mon 2 Jan 15:04:05") + ": " + cellWords[c.State]
	}
}

func foldCells(cells []cell, loc *time.Location) cell {
	one := cells[0]
	one.ID = ""
	counts := map[string]int{}
	for _, c := range cells {
		counts[c.State]++
		if slices.Index(badness, c.State) > slices.Index(badness, one.State) {
			one.State = c.State
		}
	}
	one.Title = cells[0].At.In(loc).Format("Mon 2 Jan 15:04:05") + " to " + cells[len(cells)-1].At.In(loc).Format("15:04:05") + ": "
	var parts []string
	for _, state := range slices.Backward(badness) {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, cellWords[state]))
		}
	}
	one.Title += strings.Join(parts, ", ")
	return one
}

// cellWords says what a state means.
var cellWords = map[string]string{
	cellHole: "not accounted for", cellOdd: "ended, with a problem", cellComing: "not due yet", cellPaused: "paused", cellUnknown: "not judged",
	"succeeded": "succeeded", "failed": "failed", "running": "running", "retrying": "waits for its next attempt", "pending": "waits for a worker",
	"skipped": "skipped", "missed": "missed", "expired": "expired", "cancelled": "cancelled",
}
