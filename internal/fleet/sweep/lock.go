package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// certain is how long a triggered run may be admitted by its job's lock without a record
// before it is ended. That cannot be taken back, so it is longer than any worker that has
// the run takes to claim it.
const certain = time.Minute

// stay is a slot that its job's lock admits, and that had no record when it was seen first.
type stay struct {
	since    time.Time
	recorded bool // it has one by now
}

// lock notes a change of a job's lock.
func (s *Sweeper) lock(c kv.LockChange) {
	if len(c.Holders)+len(c.Waiting) == 0 {
		delete(s.locks, c.Job)
	} else {
		s.locks[c.Job] = c
	}
}

// ended notes that a slot has its outcome. If it was left alone in its job's lock, as short
// slots are, the lock is free.
func (s *Sweeper) ended(slot job.Slot) {
	if l, ok := s.locks[slot.Job]; ok && len(l.Waiting) == 0 && len(l.Holders) == 1 && l.Holders[0].Slot == slot {
		delete(s.locks, slot.Job)
	}
}

// turns returns the slots of a lock that could go on: the holders that are not known to run
// and, if all of these have ended, the first that waits. The others wait for it, perhaps in
// a worker.
func (s *Sweeper) turns(l core.Lock) (turns []core.LockSlot) {
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

// stoppedLock is a lock with slots that could have gone on long ago and have no record, as
// far as is known. The other slots of their job wait for them.
type stoppedLock struct {
	core.Lock
	stand []job.Slot
}

// stopped returns the locks in which slots that could go on have stood still for too long.
func (s *Sweeper) stopped() []stoppedLock {
	stays, now := map[job.Slot]stay{}, s.cfg.Now()
	var found []stoppedLock
	for _, l := range s.locks {
		stopped := stoppedLock{Lock: l.Lock}
		for _, in := range s.turns(l.Lock) {
			seen, known := s.stays[in.Slot]
			if !known {
				seen.since = l.Time
			}
			after := patience
			if in.Slot.Token != "" {
				after = certain
			}
			if !seen.recorded && now.Sub(seen.since) > after {
				stopped.stand = append(stopped.stand, in.Slot)
			}
			stays[in.Slot] = seen
		}
		if len(stopped.stand) > 0 {
			found = append(found, stopped)
		}
	}
	s.stays = stays
	return found
}

// ask asks for the slots that stand still, and for those that wait behind them.
func (l stoppedLock) ask(asked map[job.Slot]bool) {
	for _, slot := range l.stand {
		asked[slot] = false
	}
	for _, in := range l.Waiting {
		asked[in.Slot] = false
	}
}

// offerStopped publishes a message for each slot that stands still in its lock and has
// neither a record nor a message.
func (s *Sweeper) offerStopped(ctx context.Context, stopped []stoppedLock, waits map[job.Slot]bool) error {
	for _, l := range stopped {
		lost, err := s.lost(ctx, l, waits)
		if err == nil && len(lost) > 0 {
			err = s.goOn(ctx, l.Lock, lost, waits)
		}
		if err := s.skip(ctx, l.stand[0], err); err != nil {
			return err
		}
	}
	return nil
}

// lost returns the slots that stand still in a lock and have neither a message nor a record.
// No worker has them: it would have claimed them. A triggered run is ended for it, which
// cannot be taken back. So the leader of the stream is asked for its messages, not any
// replica.
func (s *Sweeper) lost(ctx context.Context, l stoppedLock, waits map[job.Slot]bool) (lost []job.Slot, err error) {
	triggered := false
	for _, slot := range l.stand {
		if waits[slot] {
			continue
		}
		_, _, err := s.cfg.Ledger.Read(ctx, slot)
		switch {
		case errors.Is(err, job.ErrNotFound):
			lost = append(lost, slot)
			triggered = triggered || slot.Token != ""
		case err == nil, isUnreadable(err):
			seen := s.stays[slot]
			seen.recorded = true
			s.stays[slot] = seen
		default:
			return nil, err
		}
	}
	if !triggered {
		return lost, nil
	}
	waiting, err := s.waiting(ctx, l.Job)
	if errors.Is(err, job.ErrUnknown) && ctx.Err() == nil {
		return nil, nil // the next pass asks again
	}
	return slices.DeleteFunc(lost, func(slot job.Slot) bool { return waiting[slot] }), err
}

// waiting returns all slots of a job that have a message which a worker will get, and those
// of which a part has one.
func (s *Sweeper) waiting(ctx context.Context, name string) (map[job.Slot]bool, error) {
	waiting := map[job.Slot]bool{}
	for _, messages := range []Messages{s.cfg.Slots, s.cfg.Timers} {
		for w, err := range messages.Waiting(ctx, kv.WaitingFilter{Job: name, Fired: true, Whole: true}) {
			if err != nil && !errors.Is(err, job.ErrInvalid) {
				return nil, err
			}
			if err == nil && !w.Stranded {
				waiting[w.Slot], waiting[w.Slot.Whole()] = true, true
			}
		}
	}
	return waiting, nil
}

// goOn publishes messages for lost slots of a lock, and for those that wait behind them: a
// purged queue would else go on by one slot in a pass. A worker may have some of these, which
// costs a delivery. A triggered run that waits is not ended before it is admitted.
func (s *Sweeper) goOn(ctx context.Context, l core.Lock, lost []job.Slot, waits map[job.Slot]bool) error {
	entry, _, err := s.cfg.Registry.Read(ctx, l.Job)
	switch {
	case errors.Is(err, job.ErrNotFound), isUnreadable(err):
		return nil // its queue is not known
	case err != nil:
		return err
	}
	for _, in := range l.Waiting {
		if _, open := s.open[in.Slot]; !open && !waits[in.Slot] && in.Slot.Token == "" && !slices.Contains(lost, in.Slot) {
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

// messages returns those of a slot in the lock. They name no revision, so the worker judges
// whether the slot is still of its job's plan. The payload of a triggered run is lost: it is
// only recorded, as failed.
func messages(slot job.Slot, e core.Entry) (all []core.Message) {
	if slot.Token != "" {
		return []core.Message{{Slot: slot, Refused: "its message was lost while it waited in its job's lock, and with it its payload"}}
	}
	shards := e.Job.Shards
	if plan, ok := e.PlanAt(slot.At); ok {
		shards = plan.Plan.Shards
	}
	m := core.Message{Slot: slot, CaughtUp: true} // its start deadline counts from now on
	if shards < 2 {
		return []core.Message{m}
	}
	for i := range shards {
		m.Slot = slot.Part(i+1, shards)
		all = append(all, m)
	}
	return all
}
