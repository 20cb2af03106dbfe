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

// stoppedLock is a lock with slots whose turn came long ago and that have no record as
// far as is known. They keep the others of their job waiting.
type stoppedLock struct {
	core.Lock
	stand []job.Slot
}

// stopped are the locks in which slots have stood still for too long with their turn.
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

// offerStopped gives the slots that stand still in their locks, and have neither a
// record nor a message, a message.
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

// lost are the slots that stand still in a lock and have neither a message nor a
// record. No worker has them in hand: it would have claimed them. Since a triggered
// run is ended for it, which cannot be taken back, the leader of the stream is asked
// for the messages of its job, not any replica.
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
		return nil, nil // the next pass sees more
	}
	return slices.DeleteFunc(lost, func(slot job.Slot) bool { return waiting[slot] }), err
}

// waiting are the slots of a job that have a message which a worker will get, and those
// of which a part has one. None is missing.
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

// goOn gives lost slots of a lock a message, and with them those that wait behind them:
// or a purged queue would go on by one slot in a pass. Of these some may be in a
// worker's hand, which costs a delivery. But a triggered run is not given up before its
// turn.
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

// messages are those of a slot that stood in the lock. Whether it is still of its
// job's plan, the worker judges, which knows nothing newer than no revision. Of a
// triggered run nobody has the payload: it is only recorded, as failed.
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
