package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// certain is how long a triggered run may have its turn in its job's lock without a
// record before it is given up. That cannot be taken back, so it is longer than any
// worker that has the run in hand takes to claim it.
const certain = time.Minute

// stay is a slot whose turn in its job's lock has come, and that had no record when
// it was seen first.
type stay struct {
	since    time.Time
	recorded bool // it has one by now
}

// lock takes in how a job's lock stands.
func (s *Sweeper) lock(c kv.LockChange) {
	if len(c.Holders)+len(c.Waiting) == 0 {
		delete(s.locks, c.Job)
	} else {
		s.locks[c.Job] = c
	}
}

// ended takes in that a slot has its outcome. One that was left alone in its job's lock,
// as short ones are, keeps nobody from anything.
func (s *Sweeper) ended(slot job.Slot) {
	if l, ok := s.locks[slot.Job]; ok && len(l.Waiting) == 0 && len(l.Holders) == 1 && l.Holders[0].Slot == slot {
		delete(s.locks, slot.Job)
	}
}

// turns are the slots of a lock that nothing keeps from going on: those that hold a
// place and are not known to be under way and, when all of these have ended, the
// first that waits. It alone: who is in hand behind it waits for it.
func (s *Sweeper) turns(l job.Lock) (turns []job.LockSlot) {
	ended := true
	for _, h := range l.Holders {
		if _, open := s.open[h.Slot]; open {
			ended = false
			continue
		}
		ended = ended && s.stays[h.Slot].recorded
		turns = append(turns, h)
	}
	if ended && len(l.Waiting) > 0 {
		turns = append(turns, l.Waiting[0])
	}
	return turns
}

// abandoned looks at the slots whose turn in their job's lock has come. One that
// has neither a record nor a message keeps the others of its job waiting, and nobody
// has it in hand: it would have been claimed.
func (s *Sweeper) abandoned(ctx context.Context) error {
	stays := map[job.Slot]stay{}
	for _, l := range s.locks {
		var lost []job.Slot
		for _, in := range s.turns(l.Lock) {
			seen, known := s.stays[in.Slot]
			if !known {
				seen.since = l.Time
			}
			stands, err := s.stands(ctx, in, &seen)
			if err != nil {
				return err
			}
			if stands {
				lost = append(lost, in.Slot)
			}
			stays[in.Slot] = seen
		}
		if err := s.goOn(ctx, l.Lock, lost); err != nil {
			return err
		}
	}
	s.stays = stays
	return nil
}

// stands reports whether a slot whose turn has come has stood still for too long,
// without a record.
func (s *Sweeper) stands(ctx context.Context, in job.LockSlot, seen *stay) (bool, error) {
	after := patience
	if in.Slot.Token != "" {
		after = certain
	}
	if seen.recorded || s.cfg.Now().Sub(seen.since) <= after {
		return false, nil
	}
	_, _, err := s.cfg.Ledger.Read(ctx, in.Slot)
	if errors.Is(err, job.ErrNotFound) {
		return true, nil
	}
	seen.recorded = err == nil
	return false, err
}

// goOn gives slots that stand still with their turn in the lock a message, if they
// have none: and then those behind them too, or a line that was purged would go on
// by one place in a pass. Of these some may be in a worker's hand, which costs a
// delivery. But a triggered run is not given up before its turn.
func (s *Sweeper) goOn(ctx context.Context, l job.Lock, stand []job.Slot) error {
	if len(stand) == 0 {
		return nil
	}
	waiting, err := s.waiting(ctx, kv.WaitingFilter{Job: l.Job, Fired: true, Whole: true})
	if errors.Is(err, job.ErrUnknown) {
		return nil // the next pass sees more
	}
	lost := slices.DeleteFunc(stand, func(slot job.Slot) bool { return waiting[slot] })
	if err != nil || len(lost) == 0 {
		return err
	}
	entry, _, err := s.cfg.Registry.Read(ctx, l.Job)
	switch {
	case errors.Is(err, job.ErrNotFound), errors.Is(err, job.ErrInvalid), errors.Is(err, job.ErrVersion):
		return nil // nobody knows its queue
	case err != nil:
		return err
	}
	for _, in := range l.Waiting {
		if _, open := s.open[in.Slot]; !open && !waiting[in.Slot] && in.Slot.Token == "" && !slices.Contains(lost, in.Slot) {
			lost = append(lost, in.Slot)
		}
	}
	for _, slot := range lost {
		for _, m := range messages(slot, entry) {
			if err := s.send(ctx, entry.Job.WithDefaults().Queue, m, job.Record{Slot: m.Slot}, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// messages are those of a slot that stood in the lock. Whether it is still of its
// job's plan, the worker judges, which knows nothing newer than no revision. Of a
// triggered run nobody has the payload: it is only recorded, as failed.
func messages(slot job.Slot, e job.Entry) (all []job.Message) {
	if slot.Token != "" {
		return []job.Message{{Slot: slot, Refused: "its message was lost while it waited in its job's lock, and with it its payload"}}
	}
	shards := e.Job.Shards
	if plan, ok := e.PlanAt(slot.At); ok {
		shards = plan.Plan.Shards
	}
	m := job.Message{Slot: slot, CaughtUp: true} // its start deadline counts from now on
	if shards < 2 {
		return []job.Message{m}
	}
	for i := range shards {
		m.Slot = slot.Part(i+1, shards)
		all = append(all, m)
	}
	return all
}
