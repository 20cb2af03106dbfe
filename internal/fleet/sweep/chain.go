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

// chainAgainAfter is the time between the first two offers for a chained slot. It exceeds the default
// duplicate window, in which the stream would fold the second offer, and the message of the chained slot
// that the worker then publishes. Each further time is twice as long, up to 2^maxChainDoublings times
// chainAgainAfter: the namespace may have a longer window, or the workers may never publish the slot.
const (
	chainAgainAfter   = job.DefaultDuplicates + every
	maxChainDoublings = 10
)

// chainedSlot is what the sweep knows of a slot of a job that runs after other jobs, while the slot has
// no known record. before is one of the slots that it comes after, which succeeded at since. offers is
// how often the sweep has offered before again, and offered is when it last did.
type chainedSlot struct {
	before         job.Slot
	since, offered time.Time
	offers         int
}

// noteChained handles a change of a slot's record. If the slot has succeeded, noteChained adds the
// slots of the jobs that run after it.
func (s *Sweeper) noteChained(c kv.Change) {
	delete(s.chained, c.Slot.Whole())
	if c.State != job.Succeeded || c.Slot.Shards > 0 || s.cfg.Now().Sub(c.Time) > s.cfg.Horizon {
		return
	}
	for _, e := range s.cfg.After(c.Slot.Job) {
		if e.ChainedAt(c.Time) && len(s.chained) < maxPublished {
			next := c.Slot
			next.Job = e.Job.Name
			s.chained[next] = chainedSlot{before: c.Slot, since: c.Time}
		}
	}
}

// isDue reports whether the slot should exist by now, and the last offer was long enough ago.
func (s *Sweeper) isDue(c chainedSlot) bool {
	if c.offers > 0 && s.cfg.Now().Sub(c.offered).Abs() < chainAgainAfter<<min(c.offers-1, maxChainDoublings) {
		return false
	}
	return s.age(c.since) > stallAfter
}

// addChained adds the chained slots that should exist by now, and the slots to offer for them, to the
// slots that listMessages looks for. It forgets slots that are too old.
func (s *Sweeper) addChained(hasMessage map[job.Slot]bool) {
	for next, c := range s.chained {
		switch {
		case s.cfg.Now().Sub(c.since) > s.cfg.Horizon:
			delete(s.chained, next)
		case s.isDue(c):
			hasMessage[next], hasMessage[c.before] = false, false
		}
	}
}

// offerChained handles the chained slots that should exist by now and have no message. For each it
// publishes a message of one of the slots before it again. The worker that gets that message finds
// the outcome, and publishes what follows from it. Until the chained slot has a record, its message may
// be lost again. So offerChained keeps it in s.chained.
func (s *Sweeper) offerChained(ctx context.Context, hasMessage map[job.Slot]bool) error {
	for next, c := range s.chained {
		if has, listed := hasMessage[next]; !listed || has || hasMessage[c.before] || !s.isDue(c) {
			continue
		}
		follows, err := s.offerChainedSlot(ctx, next, c)
		if err := s.skipIfBad(ctx, next, err); err != nil {
			return err
		}
		if err == nil && !follows {
			delete(s.chained, next)
			continue
		}
		c.offered, c.offers = s.cfg.Now(), c.offers+1
		s.chained[next] = c
	}
	return nil
}

// offerChainedSlot offers the slot c.before again, if next has no record although all slots that it comes
// after have succeeded. If one of them has not succeeded yet, follows is false: when that slot succeeds,
// noteChained adds next again.
func (s *Sweeper) offerChainedSlot(ctx context.Context, next job.Slot, c chainedSlot) (follows bool, err error) {
	jobs := s.cfg.After(c.before.Job)
	i := slices.IndexFunc(jobs, func(e plans.Entry) bool { return e.Job.Name == next.Job })
	if i < 0 {
		return false, nil // the job was edited or removed
	}
	if _, _, err := s.cfg.Ledger.Read(ctx, next); !errors.Is(err, job.ErrNotFound) {
		return false, err
	}
	var rec job.Record // of c.before
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
		if before == c.before {
			rec, revision = r, at
		}
		due = plans.Later(due, r.Finished)
	}
	if !jobs[i].ChainedAt(due) {
		return false, nil // core.Chain returns nothing, and each offer would send the alerts of before again
	}
	return true, s.publish(ctx, rec, revision)
}
