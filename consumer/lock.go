package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// enterAtOnce is enter where, as far as is known here, nothing has to be found out and
// nobody waited for, as for most slots: the write is handed over, and with it the task.
// It reports false, and has done nothing, when the slot needs a goroutine of its own.
func (t *task) enterAtOnce(ctx context.Context) bool {
	name := t.d.Slot.Job
	turns := t.locks.turns(name)
	if t.d.Backfill || !turns.tryBoth() {
		return false
	}
	seen, known := t.locks.guess(name)
	entrant := core.NewEntrant(t.d, t.view)
	next, place, ask := seen.Enter(entrant, t.endedIn(seen))
	if !known || len(ask) > 0 || place.Kind != core.PlaceHeld || next.Same(seen.Lock) || !t.owe(new(string)) {
		turns.leaveBoth()
		return false
	}
	t.locks.send(ctx, next, seen, t.cfg.Table.nonce(t.cfg.Node.Name()), func(err error) {
		defer t.recovered()
		turns.leaveBoth()
		if err == nil {
			t.hold(entrant, next, place)
		}
		if err != nil || !t.claimAtOnce(ctx) {
			t.do(t.decide) // which enters as well, if it was not done
		}
	})
	return true
}

// hold notes that the stored lock gives the slot a place.
func (t *task) hold(entrant core.Entrant, stored core.Lock, place core.Place) {
	t.view.Place, t.skips = place, entrant.Policy == job.OverlapSkip && entrant.Places == 1
	if stay, in := stored.Stay(t.d.Slot.Whole()); in {
		t.entered, t.since = true, stay.Since
	}
}

// enter asks the job's lock for a place, and notes the answer in the view. Whoever
// is given a place holds it by a won write.
func (t *task) enter(ctx context.Context) error {
	t.outfought = false
	name, ended := t.d.Slot.Job, map[job.Slot]bool{}
	turns := t.locks.turns(name)
	if !t.parked { // one whose turn may have come goes before those who have just come
		if !take(ctx, turns.enter) {
			return fmt.Errorf("enter the lock of job %s: %w", name, context.Cause(ctx))
		}
		defer func() { <-turns.enter }()
		if t.locks.full(name, t.d.Slot.Whole()) && core.NewEntrant(t.d, t.view).InLine() {
			t.view.Place = core.Place{Kind: core.PlaceCrowded}
			return nil
		}
	}
	if !take(ctx, turns.change) {
		return fmt.Errorf("enter the lock of job %s: %w", name, context.Cause(ctx))
	}
	defer func() { <-turns.change }()
	entrant := core.NewEntrant(t.d, t.view)
	var seen seenLock
	known, remembered := false, false
	for turn, lost := 0, 0; turn < 4*maxTurns && lost < maxTurns; turn++ {
		if !known {
			var err error
			if seen, remembered, err = t.recall(ctx, ended); err != nil {
				return err
			}
			known = true
		}
		next, place, ask := seen.Enter(entrant, ended)
		renewed := t.reenters(next)
		if renewed {
			next = next.Renewed(t.d.Slot.Whole(), t.cfg.Now())
		}
		switch {
		case len(ask) > 0 && remembered:
			t.locks.forget(name)
			known = false
			continue
		case len(ask) > 0:
			if err := t.learn(ctx, ask, ended); err != nil {
				return err
			}
			continue
		case !next.Same(seen.Lock), renewed:
			err := t.locks.put(ctx, next, seen, t.cfg.Table.nonce(t.cfg.Node.Name()))
			if errors.Is(err, job.ErrConflict) {
				known = false
				if lost++; !outlast(ctx, lost) {
					return fmt.Errorf("enter the lock of job %s: %w", name, context.Cause(ctx))
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("write the lock of job %s: %w", name, err)
			}
		}
		t.hold(entrant, next, place)
		return nil
	}
	t.view.Place, t.outfought = core.Place{Kind: core.PlaceCrowded}, true
	return nil
}

// recall is the lock of the slot's job, and what is known from before about who in it
// has ended. Anything else is forgotten: one that had ended may have been reopened, and
// have come in again.
func (t *task) recall(ctx context.Context, ended map[job.Slot]bool) (seen seenLock, remembered bool, err error) {
	name := t.d.Slot.Job
	if seen, remembered, err = t.locks.get(ctx, name); err != nil {
		return seen, false, fmt.Errorf("read the lock of job %s: %w", name, err)
	}
	clear(ended)
	maps.Copy(ended, t.endedIn(seen))
	return seen, remembered, nil
}

// endedIn is who in the lock is known to have ended, without a question: nobody, or the
// only one.
func (t *task) endedIn(seen seenLock) map[job.Slot]bool {
	if !seen.over || seen.Holds(t.d.Slot.Whole()) {
		return nil
	}
	return map[job.Slot]bool{seen.Holders[0].Slot: true}
}

// outlast waits before a write of a lock that was refused so often in a row: not the
// first time, since then somebody else was faster; longer each time after that, since
// many are. It is false when ctx ended first.
func outlast(ctx context.Context, lost int) bool {
	if lost < 2 {
		return ctx.Err() == nil
	}
	d := 5 * time.Millisecond << min(lost, 6)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reenters reports whether the slot may have been reopened, and stands in the lock
// from before it ended: it begins a stay of its own. Whoever has found that it has
// ended, and is about to take its place, is refused by that write; and who wrote its
// outcome, and has not left yet, does not leave for it.
func (t *task) reenters(next core.Lock) bool {
	return !t.entered && (t.d.Backfill || t.d.Offer > 0) && next.Has(t.d.Slot.Whole())
}

// learn finds out which of the slots have an outcome. Only a record says so, as
// the ledger's leader has it, also of a slot that this node has in hand: it may be
// the second copy of one that has ended long ago, of which nobody knows yet. One
// without a record has none yet, unless it is too old ever to run: by a lease, since
// its worker may have judged its age, and slept before the claim. If the job was deleted
// it will not run either: who has not heard of that has had a lease to claim it.
func (t *task) learn(ctx context.Context, slots []core.LockSlot, ended map[job.Slot]bool) error {
	for _, s := range slots {
		rec, _, err := t.cfg.Ledger.Read(ctx, s.Slot)
		switch {
		case errors.Is(err, job.ErrNotFound):
			ended[s.Slot] = t.isOver(s)
		case err != nil:
			return fmt.Errorf("read slot %s, which is in the way: %w", s.Slot, err)
		default:
			ended[s.Slot] = rec.State.Final()
		}
	}
	return nil
}

// isOver reports whether a slot in the lock that has no record will never have one. A
// clock that is not believed ends none.
func (t *task) isOver(s core.LockSlot) bool {
	now := t.cfg.Now()
	return t.cfg.Plausible() == nil &&
		(now.Sub(s.At) > t.cfg.Horizon+t.cfg.Lease || t.view.Entry == nil && now.Sub(s.Since) > t.cfg.Lease)
}

// leave takes the slot, which has its outcome, out of its job's lock, and wakes
// those that have the place now. What fails here is mended by the next slot that
// asks: a holder with an outcome holds nothing.
//
// So one that was short is left in the lock when nobody is known to wait there: the
// next one takes its place with the same write with which it enters. Few wait for
// their turn where slots are skipped, and they look for themselves before long.
func (t *task) leave() {
	if t.leaveIn() {
		return
	}
	ctx, cancel := context.WithTimeout(t.cfg.Life, t.cfg.Lease)
	defer cancel()
	places := 1
	// The slot may have run for hours: what counts is how many places there are now.
	if e, err := t.cfg.Registry.Lookup(ctx, t.d.Slot.Job, t.d.JobRevision); err == nil {
		if !e.Job.Guarded() {
			return
		}
		places = e.Job.Places()
	}
	if err := t.leaveTo(ctx, places); err != nil {
		t.cfg.Logger.Warn("a lock was not left; the next slot sees to it", "slot", t.d.Slot.ID(), "error", err)
	}
}

// leaveIn leaves the slot in its lock, if that will do. It does not block.
func (t *task) leaveIn() bool {
	if !t.skips || t.cfg.Now().Sub(t.since) >= look || !t.locks.over(t.d.Slot.Whole(), t.since) {
		return false
	}
	t.entered = false
	t.lots.wakeOne(t.d.Slot.Job)
	return true
}

// leaveTo is leave for a job with so many places, until it is done or ctx ends.
func (t *task) leaveTo(ctx context.Context, places int) error {
	turns := t.locks.turns(t.d.Slot.Job)
	if !take(ctx, turns.change) {
		return context.Cause(ctx)
	}
	defer func() { <-turns.change }()
	for lost := 0; ; {
		seen, _, err := t.locks.get(ctx, t.d.Slot.Job)
		if err != nil {
			return err
		}
		if stay, in := seen.Stay(t.d.Slot.Whole()); !in || !stay.Since.Equal(t.since) {
			return nil
		}
		next, woken := seen.Leave(t.d.Slot.Whole(), places)
		err = t.locks.put(ctx, next, seen, t.cfg.Table.nonce(t.cfg.Node.Name()))
		switch {
		case err == nil:
			for _, s := range woken {
				t.cfg.Wake(s)
			}
			if len(next.Holders) < places {
				t.lots.wakeOne(t.d.Slot.Job)
			}
			return nil
		case !errors.Is(err, job.ErrConflict):
			return err
		}
		if lost++; !outlast(ctx, lost) {
			return err
		}
	}
}
