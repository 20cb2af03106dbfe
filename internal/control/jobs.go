package control

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// ListedJob is a row of the listing of jobs. Of a broken one only the name and the
// revision are certain.
type ListedJob struct {
	Job       string    `json:"job"`
	Schedule  string    `json:"schedule"`
	After     []string  `json:"after,omitempty"`
	On        job.On    `json:"on,omitzero"`
	Timezone  string    `json:"timezone"`
	Queue     string    `json:"queue"`
	Revision  uint64    `json:"revision"`
	Owner     string    `json:"owner,omitempty"`
	Paused    bool      `json:"paused"`
	Next      time.Time `json:"next,omitzero"`
	Last      time.Time `json:"last,omitzero"`
	LastState job.State `json:"last_state,omitempty"`
	Handlers  int       `json:"handlers"`
	Broken    string    `json:"broken,omitempty"`

	// Start is what starts it, in words.
	Start string `json:"-"`
}

// Place is where the job stands: the one that was written last comes last.
func (j ListedJob) Place() Place { return Place(fmt.Sprintf(placeRevision, j.Revision)) }

const placeRevision = "%020d"

func (p Place) checkRevision() error {
	if n, err := strconv.ParseUint(string(p), 10, 64); p != "" && (err != nil || fmt.Sprintf(placeRevision, n) != string(p)) {
		return p.wrong()
	}
	return nil
}

// JobList is a listing of jobs.
type JobList struct {
	Jobs []ListedJob

	// Unreadable is why values were left out, in whole or in part.
	Unreadable []error
}

// ListJobs lists the jobs after a place. Their next slots are those after now, the
// time by the caller's clock; zero: by the broker's.
func (c *Control) ListJobs(ctx context.Context, place Place, now time.Time) (JobList, error) {
	var list JobList
	if err := place.checkRevision(); err != nil {
		return list, err
	}
	entries, err := c.cfg.Jobs.List(ctx)
	broken, err := Broken(err)
	if err != nil {
		return list, err
	}
	c.cfg.Alive()
	brokers, err := c.cfg.Now(ctx)
	if err != nil {
		return list, err
	}
	if now.IsZero() {
		now = brokers
	}
	workers, err := c.Workers(ctx, brokers)
	if err != nil {
		return list, err
	}
	for _, e := range entries {
		row, err := listedJob(e, now)
		if err != nil && !unreadable(err) {
			return list, err
		}
		if err != nil {
			list.Unreadable = append(list.Unreadable, err)
		}
		row.Handlers = len(workers.Of(e.Job))
		c.cfg.Alive() // the schedules of many jobs take this process seconds, which are no silence of the broker
		list.Jobs = append(list.Jobs, row)
	}
	for _, b := range broken {
		list.Jobs = append(list.Jobs, ListedJob{Job: b.Name, Revision: b.Revision, Broken: strings.ReplaceAll(b.Err.Error(), "\n", "; ")})
	}
	list.Jobs = after(list.Jobs, place)
	slices.SortFunc(list.Jobs, func(x, y ListedJob) int { return cmp.Compare(x.Revision, y.Revision) })
	return list, c.addLast(ctx, &list)
}

func listedJob(e core.Entry, now time.Time) (ListedJob, error) {
	j := e.Job.WithDefaults()
	row := ListedJob{
		Job: j.Name, Schedule: j.Schedule, After: j.After, On: j.On, Timezone: j.Timezone, Queue: j.Queue,
		Revision: e.Revision, Owner: e.Owner, Paused: e.Paused, Start: j.Plan().Start(),
	}
	if e.Paused {
		return row, nil
	}
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if err == nil {
		row.Next = s.Next(now)
	}
	return row, err
}

// addLast adds each job's newest slot that has a record, found in one pass over the
// ledger: it has no index by job.
func (c *Control) addLast(ctx context.Context, list *JobList) error {
	byName := make(map[string]*ListedJob, len(list.Jobs))
	for i := range list.Jobs {
		byName[list.Jobs[i].Job] = &list.Jobs[i]
	}
	for e, err := range c.cfg.Ledger.List(ctx, kv.ListFilter{}) {
		c.cfg.Alive()
		switch {
		case err != nil && !unreadable(err):
			return err
		case err != nil:
			list.Unreadable = append(list.Unreadable, err)
			continue
		}
		at := e.Slot.At
		if e.Last.After(at) {
			at = e.Last // a range of missed slots
		}
		if j := byName[e.Slot.Job]; j != nil && at.After(j.Last) {
			j.Last, j.LastState = at.UTC(), e.State
		}
	}
	return nil
}

// Coming is what comes of a job.
type Coming struct {
	core.Entry
	*job.Schedule

	// Now is the broker's time.
	Now time.Time
}

// Coming tells when a job's slots are, be it paused or not. job.ErrNotFound: there
// is none of this name.
func (c *Control) Coming(ctx context.Context, name string) (Coming, error) {
	var coming Coming
	var err error
	if coming.Entry, err = c.read(ctx, name); err != nil {
		return coming, err
	}
	if coming.Schedule, err = job.ParseSchedule(name, coming.Job.Plan()); err != nil {
		return coming, err
	}
	coming.Now, err = c.cfg.Now(ctx)
	return coming, err
}

// Slots are at most count of them, strictly after a time and before until; zero: no
// end.
func (c Coming) Slots(after, until time.Time, count int) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		at := c.Next(after)
		for range count {
			if at.IsZero() || !until.IsZero() && !at.Before(until) || !yield(at) {
				return
			}
			at = c.Next(at)
		}
	}
}
