package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// follower is a slot that comes after others of which the last known one has
// succeeded, and that has no record as far as is known.
type follower struct {
	entry  job.Entry
	before job.Slot
	since  time.Time
}

// chain takes in that a slot has a record, and, if it has succeeded, what is to
// follow from it.
func (s *Sweeper) chain(c kv.Change) {
	delete(s.follow, c.Slot.Whole())
	if c.State != job.Succeeded || c.Slot.Shards > 0 || s.cfg.Now().Sub(c.Time) > s.cfg.Horizon {
		return
	}
	for _, e := range s.cfg.After(c.Slot.Job) {
		if e.Chained(c.Time) && len(s.follow) < maxHanded {
			next := c.Slot
			next.Job = e.Job.Name
			s.follow[next] = follower{e, c.Slot, c.Time}
		}
	}
}

// followers looks at the slots that should have followed from others by now. The
// message of one of those others is offered again: whoever gets it finds the
// outcome, and sees to what follows from it.
func (s *Sweeper) followers(ctx context.Context) error {
	for next, f := range s.follow {
		if s.cfg.Now().Sub(f.since) <= patience {
			continue
		}
		lost, err := s.lost(ctx, next, f)
		if err != nil {
			return err
		}
		if lost {
			rec, revision, err := s.cfg.Ledger.Read(ctx, f.before)
			if err != nil {
				return err
			}
			if err := s.publish(ctx, rec, revision); err != nil {
				return err
			}
		}
		delete(s.follow, next)
	}
	return nil
}

// lost reports whether there is neither a record nor a message of the slot, though
// all that it comes after have succeeded. If one of these has not, its own success
// will tell of the slot again.
func (s *Sweeper) lost(ctx context.Context, next job.Slot, f follower) (bool, error) {
	if _, _, err := s.cfg.Ledger.Read(ctx, next); !errors.Is(err, job.ErrNotFound) {
		return false, err
	}
	for _, name := range f.entry.Job.After {
		before := next
		before.Job = name
		rec, _, err := s.cfg.Ledger.Read(ctx, before)
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			return false, err
		}
		if rec.State != job.Succeeded {
			return false, nil
		}
	}
	waiting, err := s.waiting(ctx, kv.WaitingFilter{Job: next.Job, Fired: true})
	return err == nil && !waiting[next], err
}
