package pages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// The states of a cell that no slot has.
const (
	cellHole    = "hole"    // it should exist, or have an outcome, and does not
	cellOdd     = "odd"     // it has an outcome, and something else is wrong
	cellComing  = "coming"  // it is not due yet
	cellPaused  = "paused"  // it falls into a pause
	cellUnknown = "unknown" // nothing is known of it: it cannot be judged
)

// accountKey names the slots of one job in a range.
type accountKey struct {
	Job      string
	From, To time.Time
	Zone     string
}

// account is what became of each slot that should exist in a range.
type account struct {
	// Groups are the rows of the strip: days, or the hours of a day.
	Groups []group

	// Counts are the slots of the schedule by the states of their cells, and Beside the runs that
	// are in no schedule, by their states.
	Counts map[string]int
	Beside map[job.State]int

	// Problems are what verify has found, up to mostProblems; Found is how many there are.
	Problems  []client.SlotProblem
	Found     int
	Repaired  int // how many of them a repair would offer again
	NotJudged []client.NotJudged

	// Samples are durations and lateness of slots, the newest mostSamples.
	Took, Late []sample
	Rows       []client.SlotRow // the newest ones of the range, with their outcome
}

const (
	mostProblems = 50
	mostSamples  = 200
	mostRows     = 50

	// mostCells bounds the cells of a group. If there are more slots, a cell has several.
	mostCells = 60

	// mostSlots bounds the slots of an account.
	mostSlots = 100_000
)

// group is a row of cells.
type group struct {
	Label string
	Day   time.Time // its beginning
	Cells []cell
	Apart int // of a calendar: how many days are before it in its week; else 0
}

// cell is a slot that should exist, or several of them.
type cell struct {
	At    time.Time
	State string // the worst one of its slots
	ID    string // of the slot. Empty: several
	Title string
	Count int
}

// badness orders the states of a cell, the worst last.
var badness = []string{
	cellUnknown, cellComing, cellPaused, string(job.Succeeded), string(job.Cancelled), string(job.Skipped), string(job.Pending), string(job.Running),
	string(job.Missed), string(job.Retrying), string(job.Expired), string(job.Failed), cellOdd, cellHole,
}

// newAccount computes what should exist, with the function behind cronce verify, and what does.
func newAccount(ctx context.Context, c *client.Client, k accountKey, calendar bool) (account, error) {
	a := account{Counts: map[string]int{}, Beside: map[job.State]int{}}
	u, err := c.Next(ctx, k.Job)
	if err != nil {
		return a, err
	}
	loc := zoneOf(k.Zone, u.Definition)
	found, err := a.verify(ctx, c, k, u.Now)
	if err != nil {
		return a, err
	}
	rows, err := a.read(ctx, c, k)
	if err != nil {
		return a, err
	}
	var cells []cell
	for at, paused := range u.Planned(k.From, k.To) {
		if len(cells) >= mostSlots {
			return a, fmt.Errorf("%w range: it has more than %d slots: choose a shorter one", job.ErrInvalid, mostSlots)
		}
		id := job.NewSlot(k.Job, at).ID()
		row, has := rows[id]
		delete(rows, id)
		cl := cell{At: at, ID: id, Count: 1}
		problem, bad := found[id]
		switch {
		case bad && (problem.Problem == client.ProblemMissing || problem.Problem == client.ProblemNoOutcome):
			cl.State = cellHole
		case bad:
			cl.State = cellOdd
		case has:
			cl.State = string(row.State)
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
	for _, row := range rows {
		a.Beside[row.State]++
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
	to := k.To
	if to.After(now) {
		to = now
	}
	if !to.After(k.From) {
		return found, nil
	}
	sum, err := c.Verify(ctx, client.VerifyOptions{From: k.From, To: to, Jobs: []string{k.Job}}, func(p client.SlotProblem) error {
		if len(found) < mostSlots {
			found[p.ID] = p
		}
		if len(a.Problems) < mostProblems {
			a.Problems = append(a.Problems, p)
		}
		if p.BeyondRepair == "" && (p.Problem == client.ProblemMissing || p.Problem == client.ProblemNoOutcome) {
			a.Repaired++
		}
		return nil
	})
	a.Found, a.NotJudged = sum.Problems(), sum.NotJudged
	return found, err
}

// read returns the job's slots of the range by their IDs.
func (a *account) read(ctx context.Context, c *client.Client, k accountKey) (map[string]client.SlotRow, error) {
	rows := map[string]client.SlotRow{}
	for s, err := range c.Slots(ctx, client.SlotFilter{Job: k.Job, Since: k.From}) {
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			continue // one record cannot be read: verify says so
		case len(rows) >= mostSlots:
			return rows, nil
		}
		if at := when(s); !at.Before(k.To) {
			continue
		}
		s.Output = ""
		rows[s.ID] = s
		if a.Rows = append(a.Rows, s); len(a.Rows) > 2*mostRows {
			a.Rows = append(a.Rows[:0], a.Rows[len(a.Rows)-mostRows:]...)
		}
		a.sample(s)
	}
	a.Rows = a.Rows[max(0, len(a.Rows)-mostRows):]
	slices.Reverse(a.Rows)
	return rows, nil
}

// when is the slot's instant, or when it was triggered.
func when(s client.SlotRow) time.Time {
	if !s.Slot.IsZero() {
		return s.Slot
	}
	return s.Published
}

func (a *account) sample(s client.SlotRow) {
	keep := func(all []sample, v time.Duration) []sample {
		if len(all) >= 2*mostSamples {
			all = append(all[:0], all[len(all)-mostSamples:]...)
		}
		return append(all, sample{when(s), s.State, v})
	}
	if !s.Started.IsZero() && !s.Finished.IsZero() && s.State.Final() {
		a.Took = keep(a.Took, s.Finished.Sub(s.Started))
	}
	if first := s.First; !first.IsZero() && !s.Due.IsZero() {
		a.Late = keep(a.Late, max(0, first.Sub(s.Due)))
	}
}

// zoneOf is the zone in which to show the times of a job.
func zoneOf(choice string, d client.Definition) *time.Location {
	p := shell.Prefs{Zone: choice, Location: time.UTC}
	if choice != shell.ZoneJob {
		if loc, err := tzdata.Load(choice); err == nil {
			p.Location = loc
		}
	}
	return p.In(d.Job.WithDefaults().Timezone)
}

// fewSlots is how many slots of a day are in one row. If there are more, each hour has a row.
const fewSlots = 48

// groups puts cells, which come in the order of time, into days, or into the hours of one day.
// There are none without cells.
func groups(cells []cell, k accountKey, loc *time.Location) []group {
	var all []group
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

// fold gives the cells their titles. If there are too many, it makes one of several neighbours.
func (g *group) fold(loc *time.Location) {
	each := (len(g.Cells) + mostCells - 1) / mostCells
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
	one.ID, one.Count = "", len(cells)
	counts := map[string]int{}
	for _, c := range cells {
		counts[c.State]++
		if slices.Index(badness, c.State) > slices.Index(badness, one.State) {
			one.State = c.State
		}
	}
	one.Title = cells[0].At.In(loc).Format("Mon 2 Jan 15:04:05") + " to " + cells[len(cells)-1].At.In(loc).Format("15:04:05") + ": "
	for i, state := range slices.Backward(badness) {
		if n := counts[state]; n > 0 {
			one.Title += fmt.Sprintf("%d %s", n, cellWords[state])
			if counts[state] = 0; i > 0 && slices.ContainsFunc(badness[:i], func(s string) bool { return counts[s] > 0 }) {
				one.Title += ", "
			}
		}
	}
	return one
}

// cellWords says what a state means.
var cellWords = map[string]string{
	cellHole: "not accounted for", cellOdd: "ended, with a problem", cellComing: "not due yet", cellPaused: "in a pause", cellUnknown: "not judged",
	"succeeded": "succeeded", "failed": "failed", "running": "running", "retrying": "waits for its next attempt", "pending": "waits for a worker",
	"skipped": "skipped", "missed": "missed", "expired": "expired", "cancelled": "cancelled",
}

// slotStates returns the states of a job's slots in a range, by their IDs.
func slotStates(ctx context.Context, c *client.Client, name string, from, to time.Time) (map[string]job.State, error) {
	states := map[string]job.State{}
	for s, err := range c.Slots(ctx, client.SlotFilter{Job: name, Since: from}) {
		if err != nil && (ctx.Err() != nil || !errors.Is(err, job.ErrInvalid) && !errors.Is(err, job.ErrVersion)) {
			return nil, err
		}
		if err == nil && s.Slot.Before(to) {
			states[s.ID] = s.State
		}
	}
	return states, nil
}
