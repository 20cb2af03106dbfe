package consumer

import (
	"context"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// skipRecorded cuts the slots that have an outcome off the beginning of a delivered range. A slot
// has one if it has a record of its own, or if the record of another range covers it. left is false
// if no slot is left.
//
// The record of a range that begins at the same slot is read only if it may exist: see load.
func (t *task) skipRecorded(ctx context.Context, first bool) (left bool, err error) {
	if t.d.MissedLast.IsZero() {
		return true, nil
	}
	for {
		rec, _, err := t.readSlot(ctx, job.NewSlot(t.d.Slot.Job, t.d.Slot.At))
		if err != nil && !exchange.IsUnreadable(err) {
			return false, err
		}
		until := t.d.Slot.At
		if rec == nil && err == nil {
			if first {
				return true, nil
			}
			r, _, err := t.readSlot(ctx, t.d.Slot)
			switch {
			case err != nil:
				return false, err
			case r == nil || !r.Last.Before(t.d.MissedLast):
				return true, nil
			}
			until = plans.Later(until, r.Last)
		}
		switch {
		case t.lookupErr != nil && !exchange.IsUnreadable(t.lookupErr):
			return false, t.lookupErr
		case t.view.Entry == nil:
			return true, nil // the slots cannot be computed
		}
		if t.d, left = t.d.Rest(*t.view.Entry, until); !left {
			return false, nil
		}
		first = false
	}
}
