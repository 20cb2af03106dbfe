package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// follower is a slot without a record, as far as is known, that comes after others, of which
// one has succeeded.
type follower struct {
	entry  core.Entry
	before job.Slot
	since  time.Time
}

// chain notes that a slot has a record and, if it has succeeded, what should follow from it.
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

// isDue reports whether the slot should have followed by now.
func (s *Sweeper) isDue(f follower) bool { return s.age(f.since) > patience }

// askFollowers asks for the slots that should have followed from others by now.
func (s *Sweeper) askFollowers(asked map[job.Slot]bool) {
	for next, f := range s.follow {
		if s.isDue(f) {
			asked[next] = false
		}
	}
}

// followers goes through the slots that should have followed from others by now and have no
// message. It offers one of those others again: the worker that gets it finds the outcome,
// and publishes what follows from it.
func (s *Sweeper) followers(ctx context.Context, waits map[job.Slot]bool) error {
	for next, f := range s.follow {
		if !s.isDue(f) {
			continue
		}
		if !waits[next] {
			if err := s.skip(ctx, next, s.follows(ctx, next, f)); err != nil {
				return err
			}
		}
		delete(s.follow, next)
	}
	return nil
}

// follows offers again one of the slots that next comes after, if next has no record
// though all of them have succeeded. If one has not, its own success will name next
// again.
func (s *Sweeper) follows(ctx context.Context, next job.Slot, f follower) error {
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
