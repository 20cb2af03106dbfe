package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// runLostAfter is how long a triggered run may be admitted by its job's lock, without a record,
// before the sweep ends it. This cannot be undone, so the time is longer than any worker needs to
// claim a run that it has received.
const runLostAfter = time.Minute

// admittedSlot is a slot that could start (see startable) and had no known record when the sweep
// first saw it in its job's lock. since is when that state of the lock was written.
type admittedSlot struct {
	since    time.Time
	recorded bool // it has a record by now
}

func (s *Sweeper) noteLock(c kv.LockChange) {
	if len(c.Holders)+len(c.Waiting) == 0 {
		delete(s.locks, c.Job)
	} else {
		s.locks[c.Job] = c
	}
}

// noteEnded notes that a slot has its outcome. If it is the only slot in its job's lock, the lock
// counts as free: workers leave a short slot in its lock (docs/decisions/0030).
func (s *Sweeper) noteEnded(slot job.Slot) {
	if l, ok := s.locks[slot.Job]; ok && len(l.Waiting) == 0 && len(l.Holders) == 1 && l.Holders[0].Slot == slot {
		delete(s.locks, slot.Job)
	}
}

// startable returns the slots of a lock that could start: the holders that are not known to run
// and, if all holders have ended, the first slot that waits. The others wait for that one.
func (s *Sweeper) startable(l core.Lock) (startable []core.LockSlot) {
	ended := true
	for _, h := range l.Holders {
		if _, open := s.unfinished[h.Slot]; open {
			ended = false
			continue
		}
		ended = ended && s.admitted[h.Slot].recorded
		startable = append(startable, h)
	}
	if ended && len(l.Waiting) > 0 {
		startable = append(startable, l.Waiting[0])
	}
	return startable
}

// stoppedLock is a lock with stuck slots: they should have started by now, and no record of them
// is known. The other slots of the job wait for them.
type stoppedLock struct {
	core.Lock
	stuck []job.Slot
}

// stoppedLocks returns the locks with stuck slots.
func (s *Sweeper) stoppedLocks() []stoppedLock {
	admitted, now := map[job.Slot]admittedSlot{}, s.cfg.Now()
	var found []stoppedLock
	for _, l := range s.locks {
		stopped := stoppedLock{Lock: l.Lock}
		for _, in := range s.startable(l.Lock) {
			seen, known := s.admitted[in.Slot]
			if !known {
				seen.since = l.Time
			}
			after := stallAfter
			if in.Slot.Token != "" {
				after = runLostAfter
			}
			if !seen.recorded && now.Sub(seen.since) > after {
				stopped.stuck = append(stopped.stuck, in.Slot)
			}
			admitted[in.Slot] = seen
		}
		if len(stopped.stuck) > 0 {
			found = append(found, stopped)
		}
	}
	s.admitted = admitted
	return found
}

// addTo adds the stuck slots, and those that wait behind them, to the slots that listMessages looks
// for.
func (l stoppedLock) addTo(hasMessage map[job.Slot]bool) {
	for _, slot := range l.stuck {
		hasMessage[slot] = false
	}
	for _, in := range l.Waiting {
		hasMessage[in.Slot] = false
	}
}

// offerStopped publishes a message for each stuck slot that has neither a record nor a message.
func (s *Sweeper) offerStopped(ctx context.Context, stopped []stoppedLock, hasMessage map[job.Slot]bool) error {
	for _, l := range stopped {
		lost, err := s.lostSlots(ctx, l, hasMessage)
		if err == nil && len(lost) > 0 {
			err = s.offerLost(ctx, l.Lock, lost, hasMessage)
		}
		if err := s.skipIfBad(ctx, l.stuck[0], err); err != nil {
			return err
		}
	}
	return nil
}

// lostSlots returns the stuck slots of a lock that have neither a message nor a record. No worker
// has them, because it would have claimed them. The sweep ends a triggered run that is lost, which
// cannot be undone. So lostSlots lists the messages of its job again, and makes sure that the listing
// is complete. If the message is stranded, it still has the run's payload, so lostSlots publishes it again:
// offerStranded may have had no room for it.
func (s *Sweeper) lostSlots(ctx context.Context, l stoppedLock, hasMessage map[job.Slot]bool) (lost []job.Slot, err error) {
	triggered := false
	for _, slot := range l.stuck {
		if hasMessage[slot] {
			continue
		}
		_, _, err := s.cfg.Ledger.Read(ctx, slot)
		switch {
		case errors.Is(err, job.ErrNotFound):
			lost = append(lost, slot)
			triggered = triggered || slot.Token != ""
		case err == nil, exchange.IsUnreadable(err):
			seen := s.admitted[slot]
			seen.recorded = true
			s.admitted[slot] = seen
		default:
			return nil, err
		}
	}
	if !triggered {
		return lost, nil
	}
	all, stranded, err := s.messagesOf(ctx, l.Job, lost)
	if errors.Is(err, job.ErrUnknown) && ctx.Err() == nil {
		return nil, nil // the next pass asks again
	}
	for _, w := range stranded {
		if err == nil && !all[w.Slot] && s.age(w.Published) > stallAfter { // before, a worker may have it
			err = s.offerUnclaimed(ctx, w)
		}
		all[w.Slot], all[w.Slot.Whole()] = true, true
	}
	return slices.DeleteFunc(lost, func(slot job.Slot) bool { return all[slot] }), err
}

// messagesOf returns all slots of a job that have a message which a worker will get. A message of a shard
// also counts for the whole slot. It returns the stranded messages of the slots in lost apart from them. If
// a message may be missing, the error is job.ErrUnknown.
func (s *Sweeper) messagesOf(ctx context.Context, name string, lost []job.Slot) (hasMessage map[job.Slot]bool, stranded []strandedMessage, err error) {
	hasMessage = map[job.Slot]bool{}
	for i, messages := range []Messages{s.cfg.Slots, s.cfg.Timers} {
		for w, err := range messages.Waiting(ctx, stream.WaitingFilter{Job: name, Fired: true, Complete: true}) {
			key := strandedKey{i == 0, w.Sequence}
			switch {
			case errors.Is(err, job.ErrInvalid): // it is no slot's message
			case err != nil:
				return nil, nil, err
			case !w.Stranded:
				hasMessage[w.Slot], hasMessage[w.Slot.Whole()] = true, true
			case slices.Contains(lost, w.Slot.Whole()) && !s.leftovers[key]:
				stranded = append(stranded, strandedMessage{w, key})
			}
		}
	}
	return hasMessage, stranded, nil
}

// offerLost publishes messages for the lost slots of a lock, and for the slots that wait behind
// them. Otherwise, after a queue was purged, each pass would restart only one slot. If a worker
// already has a message of a waiting slot, the second one costs a delivery. offerLost leaves out
// triggered runs that wait: the sweep ends them only after the lock has admitted them.
func (s *Sweeper) offerLost(ctx context.Context, l core.Lock, lost []job.Slot, hasMessage map[job.Slot]bool) error {
	entry, _, err := s.cfg.Registry.Read(ctx, l.Job)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil // its queue is not known
	case err != nil:
		return err
	}
	for _, in := range l.Waiting {
		if _, open := s.unfinished[in.Slot]; !open && !hasMessage[in.Slot] && in.Slot.Token == "" && !slices.Contains(lost, in.Slot) {
			lost = append(lost, in.Slot)
		}
	}
	for _, slot := range lost {
		for _, m := range replacements(slot, entry) {
			if err := s.send(ctx, entry.Job.WithDefaults().Queue, m, job.Record{Slot: m.Slot}, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// replacements returns the messages to publish for a slot in a lock whose messages are lost. They name
// no revision of the job, so the worker decides whether the slot still belongs to the job's plan. The
// payload of a triggered run is lost too, so the worker only records the run as failed.
func replacements(slot job.Slot, e plans.Entry) (all []core.Message) {
	if slot.Token != "" {
		return []core.Message{{Slot: slot, Refused: "its message was lost while it waited in its job's lock, and with it its payload"}}
	}
	shards, chained := e.Job.Shards, e.IsChained(slot)
	if plan, ok := e.PlanAt(slot.At); ok && !chained {
		shards = plan.Plan.Shards
	}
	m := core.Message{Slot: slot, Chained: chained, CaughtUp: true} // its start deadline counts from now on
	if shards < 2 {
		return []core.Message{m}
	}
	for i := range shards {
		m.Slot = slot.WithShard(i+1, shards)
		all = append(all, m)
	}
	return all
}
