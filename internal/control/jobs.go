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

// ListedJob is a row of the listing of jobs. If the definition is Broken, only the name and
// the revision are set.
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

	// Start says in words what starts the job.
	Start string `json:"-"`
}

// Cursor returns the row's position: jobs are ordered by their last write.
func (j ListedJob) Cursor() Cursor { return Cursor(fmt.Sprintf(cursorRevision, j.Revision)) }

const cursorRevision = "%020d"

func (p Cursor) checkRevision() error {
	if n, err := strconv.ParseUint(string(p), 10, 64); p != "" && (err != nil || fmt.Sprintf(cursorRevision, n) != string(p)) {
		return p.wrong()
	}
	return nil
}

// JobList is a listing of jobs.
type JobList struct {
	Jobs []ListedJob

	// Unreadable are the errors of values that were left out.
	Unreadable []error
}

// ListJobs lists the jobs after a cursor. Their next slots are those after now. If now is
// zero, it is the broker's time.
func (c *Control) ListJobs(ctx context.Context, cursor Cursor, now time.Time) (JobList, error) {
	var list JobList
	if err := cursor.checkRevision(); err != nil {
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
		c.cfg.Alive() // computing the schedules of many jobs takes seconds
		list.Jobs = append(list.Jobs, row)
	}
	for _, b := range broken {
		list.Jobs = append(list.Jobs, ListedJob{Job: b.Name, Revision: b.Revision, Broken: strings.ReplaceAll(b.Err.Error(), "\n", "; ")})
	}
	list.Jobs = after(list.Jobs, cursor)
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

// addLast adds each job's newest slot that has a record. It reads the whole ledger once,
// which has no index by job.
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

// Upcoming has a job's next slots.
type Upcoming struct {
	core.Entry
	*job.Schedule

	// Now is the broker's time.
	Now time.Time
}

// Next returns a job's next slots, also if the job is paused. If there is no such job, the
// error matches job.ErrNotFound.
func (c *Control) Next(ctx context.Context, name string) (Upcoming, error) {
	var coming Upcoming
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

// Slots returns at most count slots, strictly after a time and before until. A zero until is
// no bound.
func (c Upcoming) Slots(after, until time.Time, count int) iter.Seq[time.Time] {
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

// JobDetails is all that is known of one job.
type JobDetails struct {
	// Resumption has the job's entry, and what Resume would do. If the definition is Broken,
	// only the name, the revision and the time are set.
	Resumption

	// Broken is why the stored definition cannot be read. Such a job has no slots.
	Broken error

	// Handlers are the names of the live nodes that would run the job.
	Handlers []string

	// Next are the job's next slots, at most showNext. A paused job has none.
	Next []time.Time

	// Last are the job's newest records, at most showLast, oldest first.
	Last []kv.LedgerEntry
}

const (
	showNext = 5
	showLast = 10
)

// Job returns all that is known of one job. If there is no such job, the error matches
// job.ErrNotFound.
func (c *Control) Job(ctx context.Context, name string) (JobDetails, error) {
	var d JobDetails
	r, err := c.PreviewResume(ctx, name)
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

// last returns the job's newest records. The ledger can only be read forward, so last reads
// a short period first, and a longer one if that has too few records.
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
			if len(found) > 2*showLast { // keep some: the records are not in the order of their slots
				found = newest(found)
			}
		}
		if len(found) >= showLast {
			break
		}
	}
	return newest(found), nil
}

// newest returns the last records in the order of their slots.
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
