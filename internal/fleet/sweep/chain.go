package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// followAgainAfter is the time between the first two offers for a follower. It exceeds the default
// duplicate window, in which the stream would fold the second offer, and the message of the follower that
// the worker then publishes. Each further time is twice as long, up to 2^maxFollowDoublings times
// followAgainAfter: the namespace may have a longer window, or the workers may never publish the follower.
const (
	followAgainAfter   = job.DefaultDuplicates + every
	maxFollowDoublings = 10
)

// follower is a slot of a job that runs after other jobs, without a known record. before is one of the
// slots that it comes after, which succeeded at since. offers is how often the sweep has offered before
// again, and offered is when it last did.
type follower struct {
	before         job.Slot
	since, offered time.Time
	offers         int
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
			s.followers[next] = follower{before: c.Slot, since: c.Time}
		}
	}
}

// isDue reports whether the slot should have followed by now, and the last offer was long enough ago.
func (s *Sweeper) isDue(f follower) bool {
	if f.offers > 0 && s.cfg.Now().Sub(f.offered).Abs() < followAgainAfter<<min(f.offers-1, maxFollowDoublings) {
		return false
	}
	return s.age(f.since) > stallAfter
}

// addFollowers adds the slots that should have followed from others by now, and the slots to offer for
// them, to the slots that listMessages looks for. It forgets slots that are too old.
func (s *Sweeper) addFollowers(hasMessage map[job.Slot]bool) {
	for next, f := range s.followers {
		switch {
		case s.cfg.Now().Sub(f.since) > s.cfg.Horizon:
			delete(s.followers, next)
		case s.isDue(f):
			hasMessage[next], hasMessage[f.before] = false, false
		}
	}
}

// offerFollowers handles the slots that should have followed from others by now and have no
// message. For each it publishes a message of one of the slots before it again. The worker that
// gets that message finds the outcome, and publishes what follows from it. Until the follower has a
// record, its message may be lost again. So offerFollowers keeps it.
func (s *Sweeper) offerFollowers(ctx context.Context, hasMessage map[job.Slot]bool) error {
	for next, f := range s.followers {
		if has, listed := hasMessage[next]; !listed || has || hasMessage[f.before] || !s.isDue(f) {
			continue
		}
		follows, err := s.offerFollower(ctx, next, f)
		if err := s.skipIfBad(ctx, next, err); err != nil {
			return err
		}
		if err == nil && !follows {
			delete(s.followers, next)
			continue
		}
		f.offered, f.offers = s.cfg.Now(), f.offers+1
		s.followers[next] = f
	}
	return nil
}

// offerFollower offers the slot f.before again, if next has no record although all slots that it comes
// after have succeeded. If one of them has not succeeded yet, follows is false: when that slot succeeds,
// noteFollowers adds next again.
func (s *Sweeper) offerFollower(ctx context.Context, next job.Slot, f follower) (follows bool, err error) {
	jobs := s.cfg.After(f.before.Job)
	i := slices.IndexFunc(jobs, func(e plans.Entry) bool { return e.Job.Name == next.Job })
	if i < 0 {
		return false, nil // the job was edited or removed
	}
	if _, _, err := s.cfg.Ledger.Read(ctx, next); !errors.Is(err, job.ErrNotFound) {
		return false, err
	}
	var rec job.Record // of f.before
	var revision uint64
	var due time.Time
	for _, name := range jobs[i].Job.After {
		before := next
		before.Job = name
		r, at, err := s.cfg.Ledger.Read(ctx, before)
		if err != nil && !errors.Is(err, job.ErrNotFound) {
			return false, err
		}
		if r.State != job.Succeeded {
			return false, nil
		}
		if before == f.before {
			rec, revision = r, at
		}
		due = plans.Later(due, r.Finished)
	}
	if !jobs[i].Chained(due) {
		return false, nil // core.Chain returns nothing, and each offer would send the alerts of before again
	}
	return true, s.publish(ctx, rec, revision)
}
