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

// runLostAfter is how long a triggered run may hold a place in its job's lock, without a record,
// before the sweep ends it. This cannot be undone, so the time is longer than any worker needs to
// claim a run that it has received.
const runLostAfter = time.Minute

func (s *Sweeper) noteLock(c kv.LockChange) {
	if len(c.Holders) == 0 && !c.Waiting && c.Line == 0 {
		delete(s.locks, c.Job)
	} else {
		s.locks[c.Job] = c
	}
}

// stoppedLock is a lock with stuck slots: they have held a place for a while, and are not known to run
// or to wait for their next attempt. The other slots of the job wait for them.
type stoppedLock struct {
	core.Lock
	stuck []job.Slot
}

// stoppedLocks returns the locks with stuck slots.
func (s *Sweeper) stoppedLocks() (found []stoppedLock) {
	for _, l := range s.locks {
		stopped := stoppedLock{Lock: l.Lock}
		for _, h := range l.Holders {
			if _, moves := s.unfinished[h.Slot]; moves {
				continue
			}
			after := stallAfter
			if h.Slot.Token != "" {
				after = runLostAfter
			}
			if s.age(h.Since) > after {
				stopped.stuck = append(stopped.stuck, h.Slot)
			}
		}
		if len(stopped.stuck) > 0 {
			found = append(found, stopped)
		}
	}
	return found
}

// addTo adds the stuck slots to the slots that listMessages looks for.
func (l stoppedLock) addTo(hasMessage map[job.Slot]bool) {
	for _, slot := range l.stuck {
		hasMessage[slot] = false
	}
}

// offerStopped publishes a message for each stuck slot that has none.
func (s *Sweeper) offerStopped(ctx context.Context, stopped []stoppedLock, hasMessage map[job.Slot]bool) error {
	for _, l := range stopped {
		lost, err := s.offerHolders(ctx, l, hasMessage)
		if err == nil && len(lost) > 0 {
			err = s.offerLost(ctx, l.Lock, lost)
		}
		if err := s.skipIfBad(ctx, l.stuck[0], err); err != nil {
			return err
		}
	}
	return nil
}

// offerHolders publishes a message for each stuck slot of a lock that has a record and no message. If
// the slot was called from the line, a worker starts it. If it has its outcome, a worker takes it out of
// the lock. It returns the slots that have neither a message nor a record.
func (s *Sweeper) offerHolders(ctx context.Context, l stoppedLock, hasMessage map[job.Slot]bool) (lost []job.Slot, err error) {
	triggered := false
	for _, slot := range l.stuck {
		if hasMessage[slot] {
			continue
		}
		rec, revision, err := s.cfg.Ledger.Read(ctx, slot)
		switch {
		case errors.Is(err, job.ErrNotFound):
			lost = append(lost, slot)
			triggered = triggered || slot.Token != ""
		case exchange.IsUnreadable(err):
			s.removeSuspect(slot, err)
		case err != nil:
			return nil, err
		case rec.State == job.Waiting || rec.State.Final():
			if err := s.call(ctx, rec, revision); err != nil {
				return nil, err
			}
		}
	}
	if !triggered {
		return lost, nil
	}
	return s.certainlyLost(ctx, l.Job, lost)
}

// certainlyLost returns the slots among lost that have no message. The sweep ends a triggered run that is
// lost, which cannot be undone. So certainlyLost lists the messages of its job again, and makes sure that
// the listing is complete. If the message is stranded, it still has the run's payload, so certainlyLost
// publishes it again: offerStranded may have had no room for it.
func (s *Sweeper) certainlyLost(ctx context.Context, name string, lost []job.Slot) ([]job.Slot, error) {
	all, stranded, err := s.messagesOf(ctx, name, lost)
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

// call publishes the messages of a slot that was called from its job's line, or that has its outcome.
func (s *Sweeper) call(ctx context.Context, rec job.Record, revision uint64) error {
	entry, _, err := s.cfg.Registry.Read(ctx, rec.Slot.Job)
	if err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err) {
		return err
	}
	payload := rec.Payload
	if rec.Slot.Token == "" {
		payload = entry.Job.Payload
	}
	for _, m := range core.CallMessages(rec, revision, s.cfg.Node, err == nil && entry.IsChained(rec.Slot)) {
		if err := s.sendAs(ctx, rec.Queue, m, payload, rec.State, m.Offer); err != nil {
			return err
		}
	}
	return nil
}

// offerLost publishes messages for the lost slots of a lock.
func (s *Sweeper) offerLost(ctx context.Context, l core.Lock, lost []job.Slot) error {
	entry, _, err := s.cfg.Registry.Read(ctx, l.Job)
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil // its queue is not known
	case err != nil:
		return err
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
		return []core.Message{{Slot: slot, Refused: "its message was lost while it held a place in its job's lock, and with it its payload"}}
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
