package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// follower is a slot of a job that runs after other jobs. before is one of the slots that it comes
// after, and succeeded at since. No record of the follower is known yet.
type follower struct {
	entry  plans.Entry
	before job.Slot
	since  time.Time
}

// noteFollowers handles a change of a slot's record. If the slot has succeeded, noteFollowers adds the
// slots that should follow from it.
func (s *Sweeper) noteFollowers(c kv.Change) {
	delete(s.followers, c.Slot.Whole())
	if c.State != job.Succeeded || c.Slot.Shards > 0 || s.cfg.Now().Sub(c.Time) > s.cfg.Horizon {
		return
	}
	for _, e := range s.cfg.After(c.Slot.Job) {
		if e.Chained(c.Time) && len(s.followers) < maxPublished {
			next := c.Slot
			next.Job = e.Job.Name
			s.followers[next] = follower{e, c.Slot, c.Time}
		}
	}
}

// isDue reports whether the slot should have followed by now.
func (s *Sweeper) isDue(f follower) bool { return s.age(f.since) > stallAfter }

// addFollowers adds the slots that should have followed from others by now to the slots that
// listMessages looks for.
func (s *Sweeper) addFollowers(hasMessage map[job.Slot]bool) {
	for next, f := range s.followers {
		if s.isDue(f) {
			hasMessage[next] = false
		}
	}
}

// offerFollowers handles the slots that should have followed from others by now and have no
// message. For each it publishes a message of one of the slots before it again. The worker that
// gets that message finds the outcome, and publishes what follows from it.
func (s *Sweeper) offerFollowers(ctx context.Context, hasMessage map[job.Slot]bool) error {
	for next, f := range s.followers {
		if !s.isDue(f) {
			continue
		}
		if !hasMessage[next] {
			if err := s.skipIfBad(ctx, next, s.offerFollower(ctx, next, f)); err != nil {
				return err
			}
		}
		delete(s.followers, next)
	}
	return nil
}

// offerFollower offers one of the slots before next again, if next has no record although all of
// them have succeeded. If one of them has not succeeded yet, offerFollower does nothing: when that
// slot succeeds, noteFollowers adds next again.
func (s *Sweeper) offerFollower(ctx context.Context, next job.Slot, f follower) error {
	if _, _, err := s.cfg.Ledger.Read(ctx, next); !errors.Is(err, job.ErrNotFound) {
		return err
	}
	for _, name := range f.entry.Job.After {
		before := next
		before.Job = name
		rec, _, err := s.cfg.Ledger.Read(ctx, before)
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			return err
		}
		if rec.State != job.Succeeded {
			return nil
		}
	}
	rec, revision, err := s.cfg.Ledger.Read(ctx, f.before)
	if err != nil {
		return err
	}
	return s.publish(ctx, rec, revision)
}
