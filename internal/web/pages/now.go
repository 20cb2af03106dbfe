package pages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// verdict is what the doctor and verify have found.
type verdict struct {
	Findings []client.Finding
	Errors   int
	Warnings int
	Checked  client.Verification
	Problems int
}

// nowPage is what the first page shows.
type nowPage struct {
	Verdict  board.Result[verdict]
	Level    string // good, warning, bad; "": not known yet
	Headline string

	Jobs, Alive       int
	Running           []jobRun
	Failing           []jobRun
	Coming            []board.Job
	More              struct{ Running, Failing int } // how many are not shown
	Paused, Unhandled int

	Axis axis
}

// jobRun is a run, and its job.
type jobRun struct {
	board.Run
	Job board.Job
}

const (
	maxRunning = 20
	maxFailing = 20
	maxComing  = 12

	// axisReach is how far the time axis goes, before and after now.
	axisReach = time.Hour
	maxLanes  = 10
)

// now is the first page. It says whether all is well.
func (s *Site) now() shell.Page {
	return shell.Page{Path: "/{$}", File: "now.html", Show: func(r *shell.Request) (any, error) {
		b, err := s.board(r)
		if err != nil {
			return nil, err
		}
		p := nowPage{Jobs: len(b.Jobs)}
		p.Verdict = s.verdict(r, time.Time{}, 0)
		for _, n := range b.Nodes {
			if n.State == client.NodeAlive {
				p.Alive++
			}
		}
		for _, j := range b.Jobs {
			p.add(j, b.Now)
		}
		p.cut()
		p.judge()
		p.Axis = newAxis(p, b.Now)
		return p, nil
	}}
}

// verdict returns the newest verdict. It waits at most for patience for the first one, or for one
// whose computation began at notBefore or later.
func (s *Site) verdict(r *shell.Request, notBefore time.Time, patience time.Duration) board.Result[verdict] {
	return s.verdicts.Get(r.Context(), struct{}{}, notBefore, patience, func(ctx context.Context) (verdict, error) { return newVerdict(ctx, r.Client) })
}

// newVerdict asks the doctor, and verifies the last day.
func newVerdict(ctx context.Context, c *client.Client) (v verdict, err error) {
	d, err := c.Doctor(ctx, client.DoctorOptions{})
	if err != nil {
		return v, err
	}
	for _, f := range d.Findings {
		switch f.Level {
		case client.FindingError:
			v.Errors++
		case client.FindingWarning:
			v.Warnings++
		}
	}
	v.Findings = d.Findings
	v.Checked, err = c.Verify(ctx, client.VerifyOptions{}, nil)
	v.Problems = v.Checked.Problems()
	return v, err
}

func (p *nowPage) add(j board.Job, now time.Time) {
	if j.Paused {
		p.Paused++
	}
	if j.Broken == "" && j.Handlers == 0 {
		p.Unhandled++
	}
	for _, r := range j.Recent {
		if r.State == job.Running {
			p.Running = append(p.Running, jobRun{r, j})
		}
	}
	if r, ok := j.Failing(); ok && now.Sub(plans.Later(r.Finished, r.At)) < 24*time.Hour {
		p.Failing = append(p.Failing, jobRun{r, j})
	}
	if !j.Next.IsZero() {
		p.Coming = append(p.Coming, j)
	}
}

// cut sorts the lists, and cuts those that are too long.
func (p *nowPage) cut() {
	slices.SortFunc(p.Running, func(x, y jobRun) int { return x.Started.Compare(y.Started) })
	slices.SortFunc(p.Failing, func(x, y jobRun) int { return plans.Later(y.Finished, y.At).Compare(plans.Later(x.Finished, x.At)) })
	slices.SortFunc(p.Coming, func(x, y board.Job) int {
		return cmp.Or(x.Next.Compare(y.Next), strings.Compare(x.JobRow.Job, y.JobRow.Job))
	})
	p.More.Running, p.More.Failing = max(0, len(p.Running)-maxRunning), max(0, len(p.Failing)-maxFailing)
	p.Running = p.Running[:min(len(p.Running), maxRunning)]
	p.Failing = p.Failing[:min(len(p.Failing), maxFailing)]
	p.Coming = p.Coming[:min(len(p.Coming), maxComing)]
}

// judge says in one line whether all is well.
func (p *nowPage) judge() {
	v, failing := p.Verdict.Value, len(p.Failing)+p.More.Failing
	var wrong []string
	say := func(n int, one, many string) {
		switch {
		case n == 1:
			wrong = append(wrong, one)
		case n > 1:
			wrong = append(wrong, fmt.Sprintf(many, n))
		}
	}
	if p.Alive == 0 {
		wrong = append(wrong, "no node runs")
	}
	say(failing, "1 job is failing", "%d jobs are failing")
	if p.Verdict.Ready {
		say(v.Problems, "1 slot of the last day is not accounted for", "%d slots of the last day are not accounted for")
		say(v.Errors, "the doctor found 1 error", "the doctor found %d errors")
	}
	bad := len(wrong) > 0
	if p.Verdict.Ready {
		say(v.Warnings, "the doctor found 1 warning", "the doctor found %d warnings")
	}
	switch {
	case bad:
		p.Level = "bad"
	case len(wrong) > 0:
		p.Level = "warning"
	case p.Verdict.Ready:
		p.Level, p.Headline = "good", "All is well."
		return
	default:
		p.Headline = "Nothing seems wrong. The first checks have not ended."
		return
	}
	p.Headline = strings.Join(wrong, ", ") + "."
	p.Headline = strings.ToUpper(p.Headline[:1]) + p.Headline[1:]
}

// axis is a time axis around now, with lanes for jobs that fail, run, or run next.
type axis struct {
	From, Now, To time.Time
	Lanes         []lane
}

type lane struct {
	Job   string
	Paths []path // ticks, one path for each state
	Bars  []bar  // slots that are running
	Label string
}

type bar struct{ X, Width float64 }

// axisUnits is the width of a lane.
const axisUnits = 1000.0

func newAxis(p nowPage, now time.Time) axis {
	a := axis{From: now.Add(-axisReach), Now: now, To: now.Add(axisReach)}
	var jobs []board.Job
	seen := map[string]bool{}
	add := func(j board.Job) {
		if len(jobs) < maxLanes && !seen[j.JobRow.Job] {
			seen[j.JobRow.Job] = true
			jobs = append(jobs, j)
		}
	}
	for _, r := range p.Failing[:min(len(p.Failing), 4)] {
		add(r.Job)
	}
	for _, r := range p.Running[:min(len(p.Running), 6)] {
		add(r.Job)
	}
	for _, j := range p.Coming {
		if j.Next.Before(a.To) {
			add(j)
		}
	}
	a.Lanes = codec.Map(jobs, a.lane)
	return a
}

func (a axis) x(t time.Time) float64 {
	return round(min(max(float64(t.Sub(a.From))/float64(a.To.Sub(a.From)), 0), 1) * axisUnits)
}

func (a axis) lane(j board.Job) lane {
	l := lane{Job: j.JobRow.Job}
	drawn := map[string]string{}
	counts := map[job.State]int{}
	for _, r := range j.Recent {
		at := r.At
		if !r.Started.IsZero() {
			at = r.Started
		}
		if at.Before(a.From) {
			continue
		}
		counts[r.State]++
		if r.State == job.Running {
			l.Bars = append(l.Bars, bar{a.x(at), round(max(a.x(a.Now)-a.x(at), 2))})
			continue
		}
		drawn[string(r.State)] += fmt.Sprintf("M%g 4V20", a.x(at))
	}
	l.Label = "in the last hour: " + cmp.Or(countWords(counts), "nothing")
	if !j.Next.IsZero() && j.Next.Before(a.To) {
		drawn[cellComing] = fmt.Sprintf("M%g 4V20", a.x(j.Next))
		l.Label += "; next at " + j.Next.UTC().Format("15:04:05 UTC")
	}
	for _, state := range badness {
		if d := drawn[state]; d != "" {
			l.Paths = append(l.Paths, path{state, d})
		}
	}
	return l
}
