package control

import (
	"cmp"
	"context"
	"errors"
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
		if err != nil && !core.IsUnreadable(err) {
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
		case err != nil && !core.IsUnreadable(err):
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

// Details is all that is known of one job.
type Details struct {
	// Entry is the job's, with what the end of its pause would mean now. Of a
	// broken one only the name, the revision and the time are set.
	Resumption

	// Broken is why the stored definition cannot be read: such a job has no
	// slots.
	Broken error

	// Handlers are the live nodes that would run it.
	Handlers []string

	// Next are its coming slots, at most showNext. A paused job has none.
	Next []time.Time

	// Last are its newest records, at most showLast, oldest first.
	Last []kv.LedgerEntry
}

const (
	showNext = 5
	showLast = 10
)

// Show tells all that is known of a job. job.ErrNotFound: there is none of this
// name.
func (c *Control) Show(ctx context.Context, name string) (Details, error) {
	var d Details
	r, err := c.IfResumed(ctx, name)
	var broken *core.EntryError
	switch {
	case errors.As(err, &broken):
		d.Broken, d.Job.Name, d.Revision, d.Time = broken.Err, name, broken.Revision, broken.Time
	case err != nil:
		return d, err
	default:
		d.Resumption = r
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return d, err
	}
	workers, err := c.Workers(ctx, now)
	if err != nil {
		return d, err
	}
	if d.Broken == nil {
		d.Handlers = workers.Of(d.Job)
		if d.Next, err = next(d.Entry, now); err != nil {
			return d, err
		}
	}
	d.Last, err = c.last(ctx, name, now)
	return d, err
}

func next(e core.Entry, now time.Time) ([]time.Time, error) {
	if e.Paused {
		return nil, nil
	}
	s, err := job.ParseSchedule(e.Job.Name, e.Job.Plan())
	if err != nil {
		return nil, err
	}
	var slots []time.Time
	for at := s.Next(now); !at.IsZero() && len(slots) < showNext; at = s.Next(at) {
		slots = append(slots, at)
	}
	return slots, nil
}

// last are the job's newest records. The ledger can only be read forward: so a
// little of it first, and more if that does not hold enough.
func (c *Control) last(ctx context.Context, name string, now time.Time) ([]kv.LedgerEntry, error) {
	var found []kv.LedgerEntry
	for _, back := range []time.Duration{time.Hour, 24 * time.Hour, 0} {
		filter := kv.ListFilter{Job: name}
		if back > 0 {
			filter.Since = now.Add(-back)
		}
		found = found[:0]
		for e, err := range c.cfg.Ledger.List(ctx, filter) {
			c.cfg.Alive()
			if err != nil && !core.IsUnreadable(err) {
				return nil, err
			}
			if err == nil {
				found = append(found, e)
			}
			if len(found) > 2*showLast { // what comes later may be of an earlier slot
				found = newest(found)
			}
		}
		if len(found) >= showLast {
			break
		}
	}
	return newest(found), nil
}

// newest are the last of the records in the order of their slots.
func newest(records []kv.LedgerEntry) []kv.LedgerEntry {
	when := func(e kv.LedgerEntry) time.Time {
		if e.Slot.At.IsZero() {
			return e.Published
		}
		return e.Slot.At
	}
	slices.SortFunc(records, func(a, b kv.LedgerEntry) int {
		if c := when(a).Compare(when(b)); c != 0 {
			return c
		}
		return strings.Compare(a.Slot.ID(), b.Slot.ID())
	})
	return records[max(0, len(records)-showLast):]
}
