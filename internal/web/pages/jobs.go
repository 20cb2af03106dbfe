package pages

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/words"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// jobsShown bounds the jobs of a page.
const jobsShown = 100

// jobFilters are the values of the filter by state.
var jobFilters = []choice{
	{"", "All"}, {"failing", "Failing"}, {"running", "Running"}, {"paused", "Paused"}, {"idle", "Without handler"}, {"broken", "Unreadable"},
}

// choice is a value of a field, and how it is shown.
type choice struct{ Value, Label string }

// jobsPage is what the list of jobs shows.
type jobsPage struct {
	Rows   []jobRow
	Total  int // how many jobs the filter selects
	All    int // how many the registry has
	Queues []string
	States []choice
	State  string
	Queue  string
	Q      string
	Counts map[string]int
	More   bool // there is a next page
}

type jobRow struct {
	board.Job
	Strip     strip
	Last      *board.Run
	Words     string
	Unhandled bool
	Running   int
}

func (s *Site) jobs() shell.Page {
	return shell.Page{Path: "/jobs", Nav: "jobs", File: "jobs.html", Show: func(r *shell.Request) (any, error) {
		p := jobsPage{
			States: jobFilters, State: r.Form.One("state", codec.Map(jobFilters, func(c choice) string { return c.Value })...), Queue: r.Form.Get("queue"), Q: r.Form.Get("q"), Counts: map[string]int{},
		}
		after := r.Form.Get("after")
		b, err := s.board(r)
		if err != nil {
			return nil, err
		}
		p.All = len(b.Jobs)
		for _, j := range b.Jobs {
			p.add(j, after)
		}
		slices.Sort(p.Queues)
		p.Queues = slices.Compact(p.Queues)
		if p.Queue != "" && !slices.Contains(p.Queues, p.Queue) {
			r.Form.Wrong("queue", "no job is in the queue %q", p.Queue)
		}
		return p, nil
	}}
}

// Last is the name of the last job of the page.
func (p jobsPage) Last() string { return p.Rows[len(p.Rows)-1].JobRow.Job }

// add counts a job, and shows it if the filter selects it.
func (p *jobsPage) add(j board.Job, after string) {
	p.Queues = append(p.Queues, j.Queue)
	is := whatIs(j)
	for name, yes := range is {
		if yes {
			p.Counts[name]++
		}
	}
	if !is[p.State] || p.Queue != "" && j.Queue != p.Queue || !strings.Contains(strings.ToLower(j.JobRow.Job), strings.ToLower(p.Q)) {
		return
	}
	p.Total++
	switch {
	case j.JobRow.Job <= after:
	case len(p.Rows) == jobsShown:
		p.More = true
	default:
		p.Rows = append(p.Rows, newJobRow(j))
	}
}

// whatIs returns which values of jobFilters select a job.
func whatIs(j board.Job) map[string]bool {
	_, failing := j.Failing()
	return map[string]bool{
		"": true, "failing": failing, "paused": j.Paused, "broken": j.Broken != "", "idle": j.Broken == "" && j.Handlers == 0,
		"running": slices.ContainsFunc(j.Recent, func(r board.Run) bool { return r.State == job.Running }),
	}
}

func newJobRow(j board.Job) jobRow {
	row := jobRow{Job: j, Strip: newStrip(j.Recent), Unhandled: j.Broken == "" && j.Handlers == 0}
	if j.Broken == "" {
		row.Words = words.Of(j.JobRow.Job, job.Plan{Schedule: j.Schedule, After: j.After, On: j.On, Timezone: j.Timezone})
	}
	if last, ok := j.Last(); ok {
		row.Last = &last
	}
	for _, r := range j.Recent {
		if r.State == job.Running {
			row.Running++
		}
	}
	return row
}

// maxBulk bounds the jobs of an order on several jobs.
const maxBulk = 1000

// bulk is the page that pauses or resumes several jobs.
func (s *Site) bulk() shell.Page {
	read := func(r *shell.Request) (order string, names []string) {
		order = r.Form.One("order", "pause", "resume")
		names = r.Form.All("job")
		switch {
		case len(names) == 0:
			r.Form.Wrong("job", "no job is selected: select some in the list of jobs")
		case len(names) > maxBulk:
			r.Form.Wrong("job", "%d jobs are selected: at most %d are allowed", len(names), maxBulk)
			names = nil
		}
		slices.Sort(names)
		return order, slices.Compact(names)
	}
	show := func(r *shell.Request) (any, error) {
		name, names := read(r)
		o := order{Title: "Pause jobs", Verb: "Pause", Back: shell.Path("jobs"), Fields: []field{{Kind: "hidden", Field: shell.Field{Name: "order", Value: name}}}}
		if name == "resume" {
			o.Title, o.Verb = "Resume jobs", "Resume"
		}
		for _, n := range names {
			o.Fields = append(o.Fields, field{Kind: "hidden", Field: shell.Field{Name: "job", Value: n}})
		}
		var err error
		if o.Says, o.Ready, err = bulkLines(r, name, names); err != nil {
			return nil, err
		}
		o.permit(r, edits)
		return o, nil
	}
	do := func(r *shell.Request) (string, error) {
		name, names := read(r)
		if !r.Form.Complete() {
			return "", shell.ErrField
		}
		err := eachJob(names, func(_ int, n string) (err error) {
			if name == "pause" {
				_, err = r.Client.Pause(r.Context(), n)
			} else {
				_, err = r.Client.Resume(r.Context(), n, client.ResumeOptions{})
			}
			return err
		})
		return shell.Path("jobs"), err
	}
	return shell.Page{Path: "/jobs:bulk", Nav: "jobs", File: "order.html", Show: show, Do: do}
}

// eachJob calls f for each job, for several at once: a page does not wait long enough for 1,000 jobs
// one after the other.
func eachJob(names []string, f func(i int, name string) error) error {
	var group errgroup.Group
	group.SetLimit(32)
	for i, name := range names {
		group.Go(func() error {
			if err := f(i, name); err != nil {
				return fmt.Errorf("job %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// bulkLines returns the bulkLine of each job, and whether the order changes any.
func bulkLines(r *shell.Request, order string, names []string) (lines []string, changes bool, err error) {
	lines, changed := make([]string, len(names)), make([]bool, len(names))
	err = eachJob(names, func(i int, name string) (err error) {
		lines[i], changed[i], err = bulkLine(r, order, name)
		return err
	})
	return lines, slices.Contains(changed, true), err
}

// bulkLine says what the order does to a job, and whether it changes anything.
func bulkLine(r *shell.Request, order, name string) (line string, changes bool, err error) {
	if order == "resume" {
		d, err := r.Client.Resume(r.Context(), name, client.ResumeOptions{DryRun: true})
		if err != nil {
			return "", false, err
		}
		return name + ": " + resumeWords(d), d.Paused, nil
	}
	u, err := r.Client.Next(r.Context(), name)
	switch {
	case err != nil:
		return "", false, err
	case u.Paused:
		return name + ": it is already paused.", false, nil
	}
	return name + ": its next slots will not be published until it is resumed.", true, nil
}
