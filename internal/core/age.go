package core

import (
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// tooOld reports whether the slot is past the horizon (invariant 7). The ledger may have removed its
// record after the retention, so it must not run.
func tooOld(d Delivery, v View) bool {
	start := d.began()
	for _, r := range []*job.Record{v.Record, v.Whole.Record} {
		if r != nil && !r.Published.IsZero() && Began(*r).Before(start) {
			start = Began(*r)
		}
	}
	return v.certain().Sub(start) > v.Horizon
}

// PastHorizon reports whether the slot is older than the horizon, by its message alone.
func PastHorizon(d Delivery, now time.Time, horizon time.Duration) bool {
	return now.Sub(d.began()) > horizon
}

// began returns the time from which the slot's age counts, by its message.
func (d Delivery) began() time.Time { return began(d.Slot, d.Event, d.Due, d.Published) }

// Began returns the time from which the age of a record's slot counts. Publishing the slot again,
// after a loss or by an operator, does not change it.
func Began(r job.Record) time.Time { return began(r.Slot, r.Event, r.Due, r.Published) }

// began returns the slot's instant, or the time at which a triggered run was published. A run that a
// stream's message started is as old as that message, since a consumer that was created again
// delivers old messages again.
func began(s job.Slot, event bool, due, published time.Time) time.Time {
	switch {
	case !s.At.IsZero():
		return s.At
	case event && !due.IsZero() && due.Before(published):
		return due
	}
	return published
}

// longestWait is the longest delay of a nak for a slot whose time has not come. It is bounded
// because the clock may be changed meanwhile. implausibleWait is the delay for a slot that would
// end because of its age while the clock is implausible.
const (
	longestWait     = time.Hour
	implausibleWait = 30 * time.Second
)

// early returns how long the slot must still wait. If the broker stored the message before the due
// time, the producer's clock was fast, and the slot waits. A range is due with its last slot.
// The due time of a chained slot comes from the clock of the worker that wrote an outcome, so it
// does not delay the slot. A chained slot waits for its instant instead, which is that of the
// slots that it follows.
func early(d Delivery, v View) time.Duration {
	due := d.Due
	switch {
	case d.Chained:
		due = d.Slot.At
	case d.Slot.Range && d.MissedLast.After(due):
		due = d.MissedLast
	}
	if d.Published.Before(due) {
		return due.Sub(v.certain())
	}
	return 0
}

func pastDeadline(d Delivery, v View) bool {
	by, ok := startBy(d, v)
	return ok && v.certain().After(by)
}

// StartBy returns the deadline for the slot's first start, and false if its job has none.
func StartBy(d Delivery, e plans.Entry) (time.Time, bool) {
	from := d.Due
	if d.CaughtUp || d.Backfill || d.Chained || from.IsZero() {
		from = plans.Later(from, d.Published) // a message that was stored before the slot was due does not shorten it
	}
	return from.Add(e.Job.Deadline), e.Job.Deadline > 0
}

func startBy(d Delivery, v View) (time.Time, bool) {
	if v.Entry == nil {
		return time.Time{}, false
	}
	return StartBy(d, *v.Entry)
}

// deadlineOf returns the time by which the slot must start, for its record. It is zero if there is
// none, or if a record cannot hold it.
func deadlineOf(d Delivery, v View) time.Time {
	if by, ok := startBy(d, v); ok && by.Year() <= 9999 {
		return by.UTC()
	}
	return time.Time{}
}
