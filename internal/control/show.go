package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

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
			if err != nil && !unreadable(err) {
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
