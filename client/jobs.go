package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// JobRow is a row of the listing of jobs. If the definition is Broken, only Job, Revision, Broken
// and the fields of the last slot are set.
type JobRow struct {
	// Job is the name of the job. The fields up to Queue are those of its definition, with their
	// defaults.
	Job      string   `json:"job"`
	Schedule string   `json:"schedule"`
	After    []string `json:"after,omitempty"`
	On       job.On   `json:"on,omitzero"`
	Timezone string   `json:"timezone"`
	Queue    string   `json:"queue"`

	// Revision and Owner are explained at Definition.
	Revision uint64 `json:"revision"`
	Owner    string `json:"owner,omitempty"`

	// Next is the job's next slot. It is zero if there is none, or if the job is Paused.
	Paused bool      `json:"paused"`
	Next   time.Time `json:"next,omitzero"`

	// Last is the time of the job's newest slot that has a record, and LastState is its state. Jobs
	// looks among the last planned slots. If none of them has a record, it looks among the slots that
	// were recorded last, such as triggered runs. For their times, see SlotRow.When.
	Last      time.Time `json:"last,omitzero"`
	LastState job.State `json:"last_state,omitempty"`

	// LastShadow is true if the slot at Last was a shadow: see SlotRow.Shadow.
	LastShadow bool `json:"last_shadow,omitempty"`

	// Handlers is the number of live nodes that would run the job.
	Handlers int `json:"handlers"`

	// Broken is why the definition cannot be read. Empty: it can be read.
	Broken string `json:"broken,omitempty"`

	// Start says in words what starts the job.
	Start string `json:"-"`
}

// Cursor returns the row's position: jobs are ordered by their last write.
func (j JobRow) Cursor() Cursor { return Cursor(fmt.Sprintf(cursorRevision, j.Revision)) }

const cursorRevision = "%020d"

func (p Cursor) checkRevision() error {
	if n, err := strconv.ParseUint(string(p), 10, 64); p != "" && (err != nil || fmt.Sprintf(cursorRevision, n) != string(p)) {
		return p.wrong()
	}
	return nil
}

// JobList is a listing of jobs.
type JobList struct {
	Jobs []JobRow

	// Unreadable are the errors of values that were left out.
	Unreadable []error
}

// JobFilter selects jobs. Its zero value selects all.
type JobFilter struct {
	// After selects the jobs after this cursor. Empty: from the beginning.
	After Cursor

	// Now is the time that JobRow.Next is computed from. Zero: the broker's time.
	Now time.Time

	// NoLast leaves Last and LastState empty. Jobs then does not read the ledger.
	NoLast bool
}

// Jobs lists the jobs in the order of their last writes, oldest first. The number of requests depends
// on how many jobs there are, and not on how many records the ledger has.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (JobList, error) {
	var list JobList
	if err := f.After.checkRevision(); err != nil {
		return list, err
	}
	entries, err := c.cfg.Jobs.List(ctx)
	broken, err := plans.SplitEntryErrors(err)
	if err != nil {
		return list, err
	}
	c.cfg.Alive()
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return list, err
	}
	if f.Now.IsZero() {
		f.Now = now
	}
	workers, err := c.workers(ctx, now)
	if err != nil {
		return list, err
	}
	for _, e := range entries {
		row, err := listedJob(e, f.Now)
		if err != nil && !exchange.IsUnreadable(err) {
			return list, err
		}
		if err != nil {
			list.Unreadable = append(list.Unreadable, err)
		}
		row.Handlers = len(workers.of(e.Job))
		c.cfg.Alive() // computing the schedules of many jobs takes seconds
		list.Jobs = append(list.Jobs, row)
	}
	for _, b := range broken {
		list.Jobs = append(list.Jobs, JobRow{Job: b.Name, Revision: b.Revision, Broken: codec.OneLine(b.Err)})
	}
	list.Jobs = after(list.Jobs, f.After)
	slices.SortFunc(list.Jobs, func(x, y JobRow) int { return cmp.Compare(x.Revision, y.Revision) })
	if f.NoLast {
		return list, nil
	}
	return list, c.addLast(ctx, &list, entries, now)
}

func listedJob(e plans.Entry, now time.Time) (JobRow, error) {
	j := e.Job.WithDefaults()
	row := JobRow{
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

// plannedSlots is how many of a job's last planned slots addLast reads. It is more than one,
// because the last one may have just become due.
const plannedSlots = 2

// addLast adds each job's newest slot that has a record. It reads the records of the last planned
// slots of all jobs together. For each job without such a record, it reads the newest records.
func (c *Client) addLast(ctx context.Context, list *JobList, entries []plans.Entry, now time.Time) error {
	byName := make(map[string]*JobRow, len(list.Jobs))
	for i, j := range list.Jobs {
		byName[j.Job] = &list.Jobs[i]
	}
	var planned []job.Slot
	for _, e := range entries {
		if byName[e.Job.Name] != nil {
			planned = append(planned, c.lastPlanned(e, now, plannedSlots)...)
			c.cfg.Alive()
		}
	}
	records, err := c.cfg.Ledger.Records(ctx, planned)
	if err != nil {
		return err
	}
	c.cfg.Alive()
	for s, e := range records {
		if row := byName[s.Job]; row != nil { // a record may name another slot than its key
			row.addLast(e)
		}
	}
	var rest []*JobRow
	for i, j := range list.Jobs {
		if j.Last.IsZero() {
			rest = append(rest, &list.Jobs[i])
		}
	}
	return each(ctx, len(rest), func(ctx context.Context, i int) error {
		found, err := c.newestRecords(ctx, rest[i].Job, 1)
		for _, e := range found {
			rest[i].addLast(e)
		}
		return err
	})
}

// addLast sets the last slot to the slot of the record, if that slot is later.
func (j *JobRow) addLast(e kv.LedgerEntry) {
	at := recordedSlot(e).When()
	if e.Last.After(at) {
		at = e.Last // a range of missed slots
	}
	if at.After(j.Last) {
		j.Last, j.LastState, j.LastShadow = at.UTC(), e.State, e.IsShadow()
	}
}

// Upcoming is a job with its next slots.
type Upcoming struct {
	Definition

	// Now is the broker's time.
	Now time.Time

	schedule *job.Schedule
}

// Next returns a job's next slots, even if the job is paused. If there is no such job, the error
// wraps job.ErrNotFound.
func (c *Client) Next(ctx context.Context, name string) (Upcoming, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return Upcoming{}, err
	}
	u := Upcoming{Definition: newDefinition(e)}
	if u.schedule, err = job.ParseSchedule(name, e.Job.Plan()); err != nil {
		return u, err
	}
	u.Now, err = c.cfg.Now(ctx)
	return u, err
}

// Slots returns at most count slots, strictly after a time and before until. If until is zero,
// there is no bound.
func (u Upcoming) Slots(after, until time.Time, count int) iter.Seq[time.Time] {
	return nextSlots(u.schedule, after, until, count)
}

func nextSlots(s *job.Schedule, after, until time.Time, count int) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		at := s.Next(after)
		for range count {
			if at.IsZero() || !until.IsZero() && !at.Before(until) || !yield(at) {
				return
			}
			at = s.Next(at)
		}
	}
}

// Planned iterates over the slots of all known plans of the job, at from or later and before until,
// oldest first. The second value reports that the slot fell due in a pause, or will if the pause
// lasts.
func (d Definition) Planned(from, until time.Time) iter.Seq2[time.Time, bool] {
	return func(yield func(at time.Time, paused bool) bool) {
		for _, p := range d.entry.Plans() {
			s, err := job.ParseSchedule(d.Job.Name, p.Plan)
			if err != nil {
				continue // the stored plan is invalid
			}
			for at := range s.Between(plans.Later(p.From, from.Add(-1)), plans.UpTo(until.Add(-1), p.To)) {
				_, paused := d.entry.PausedAt(at.Add(s.Delay()))
				if !yield(at, paused) {
					return
				}
			}
		}
	}
}

// Location returns the job's time zone.
func (u Upcoming) Location() *time.Location { return u.schedule.Location() }

// JobDetails is all that is known about one job. Its JSON is that of "cronce job show".
type JobDetails struct {
	// Definition is the job. If it is Broken, only the name, the revision and the time of its
	// last write are known.
	Definition

	// Missed is how many slots became due during the current pause. Runs is how many of them
	// would run if it ended now.
	Missed, Runs int

	// Handlers are the names of the live nodes that would run the job.
	Handlers []string

	// Next are the job's next slots, at most five. A paused job has none.
	Next []time.Time

	// Last are the job's newest slots that have a record, at most ten, oldest first.
	Last []SlotRow
}

const (
	showNext = 5
	showLast = 10
)

// Job returns all that is known about one job. If there is no such job, the error wraps
// job.ErrNotFound.
func (c *Client) Job(ctx context.Context, name string) (JobDetails, error) {
	var d JobDetails
	e, err := c.read(ctx, name)
	broken := false
	switch d.Definition, broken = brokenDefinition(name, err); {
	case broken:
	case err != nil:
		return d, err
	default:
		r, err := c.resumption(ctx, e)
		if err != nil {
			return d, err
		}
		d.Definition, d.Missed, d.Runs = r.Definition, r.Missed, r.Runs
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return d, err
	}
	workers, err := c.workers(ctx, now)
	if err != nil {
		return d, err
	}
	if !broken {
		d.Handlers = workers.of(d.Job)
	}
	if !broken && !d.Paused {
		s, err := job.ParseSchedule(name, d.Job.Plan())
		if err != nil {
			return d, err
		}
		d.Next = slices.Collect(nextSlots(s, now, time.Time{}, showNext))
	}
	d.Last, err = c.newest(ctx, name, now, showLast)
	return d, err
}

// MarshalJSON writes the line of "cronce job show".
func (d JobDetails) MarshalJSON() ([]byte, error) {
	type pause struct {
		Since  time.Time `json:"since"`
		Missed int       `json:"missed"`
		Runs   int       `json:"runs"`
	}
	row := struct {
		Job        string      `json:"job"`
		Revision   uint64      `json:"revision"`
		Written    time.Time   `json:"written"`
		Broken     string      `json:"broken,omitempty"`
		Owner      string      `json:"owner,omitempty"`
		Node       string      `json:"node,omitempty"`
		Definition *job.Job    `json:"definition,omitempty"`
		Plans      []PastPlan  `json:"plans,omitempty"`
		Paused     *pause      `json:"paused,omitempty"`
		Pauses     []Period    `json:"pauses,omitempty"`
		Handlers   []string    `json:"handlers,omitempty"`
		Next       []time.Time `json:"next,omitempty"`
		Last       []SlotRow   `json:"last,omitempty"`
	}{Job: d.Job.Name, Revision: d.Revision, Written: d.Written, Handlers: d.Handlers, Next: d.Next}
	for _, slot := range d.Last {
		slot.Output = ""
		row.Last = append(row.Last, slot)
	}
	if d.Broken != nil {
		row.Broken = codec.OneLine(d.Broken)
		return json.Marshal(row)
	}
	row.Owner, row.Node, row.Definition, row.Plans, row.Pauses = d.Owner, d.By, &d.Job, d.Plans, d.Pauses
	if d.Paused {
		row.Paused = &pause{d.PausedSince(), d.Missed, d.Runs}
	}
	return json.Marshal(row)
}
