package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// lockPart is what a task knows of its job's lock.
type lockPart struct {
	// entered: the slot is in the lock, as far as this task knows. since is when its stay there
	// began. A slot that is reopened may enter again, and since tells its stays apart. revision is
	// the revision of the slot's record that the task knew when it entered.
	entered  bool
	since    time.Time
	revision uint64

	// skips: the job runs one slot at a time, and skips slots that fall due meanwhile.
	skips bool

	// waited: the slot has waited for the lock, or is to displace its holder, and asks again.
	// contended: in its last round, the task gave up entering, because other workers changed the
	// lock again and again.
	waited, contended bool

	// turns are the turns (see type turns) that the task holds now. asks counts its questions
	// to the lock, conflicts how often in a row its write was refused.
	turns           []chan struct{}
	asks, conflicts int

	// err is why the lock could not be written.
	err error
}

func (l *lockPart) releaseTurns() {
	for _, turn := range l.turns {
		<-turn
	}
	l.turns = nil
}

// enter asks the job's lock for admission, and puts the answer into the view. If the answer
// changes the lock, it takes effect only when the changed lock is stored. enter sends that write
// and returns. The callback that gets the broker's answer goes on with the task. The step blocks
// only if it has to read the lock or a record, if another slot has the turn, or after a refused
// write. For most slots, none of these is true.
func (t *task) enter(mayBlock bool) flow {
	l, ctx, slot := &t.lock, t.cfg.Node.Context(), t.d.Slot.Whole()
	switch {
	case !mayBlock && (l.conflicts > 0 || l.err != nil):
		return wouldBlock
	case l.err != nil:
		return t.postpone(fmt.Errorf("write the lock of job %s: %w", slot.Job, l.err))
	}
	l.contended = false
	if l.conflicts > 0 && !backOff(ctx, l.conflicts) || !t.takeTurns(ctx, mayBlock) {
		l.releaseTurns()
		if !mayBlock {
			return wouldBlock
		}
		return t.postpone(fmt.Errorf("enter the lock of job %s: %w", slot.Job, context.Cause(ctx)))
	}
	entrant := core.NewEntrant(t.d, t.view)
	if !l.waited && entrant.InLine() && t.locks.full(slot.Job, slot) {
		return t.applyAdmission(core.Admission{Kind: core.AdmissionCrowded}, entrant, core.Lock{})
	}
	seen, ended, fresh, err := t.recall(ctx, mayBlock)
	for ; err == nil && l.asks < maxAsks && l.conflicts < maxRounds; l.asks++ {
		next, admission, ask := seen.Enter(entrant, ended)
		// A reopened slot may still be in the lock from its earlier stay. Unless the record is
		// known to be unchanged since this task entered the slot, the slot begins a new stay.
		// That write changes the lock's revision. So another slot that saw the old outcome
		// cannot replace this one, the worker that wrote the old outcome does not end the new
		// stay, and a write that is based on an older copy of the lock is refused.
		known := l.entered && l.revision == t.view.Revision
		renewed := !known && (t.d.Backfill || t.d.Offer > 0 || t.view.Record != nil) && next.Has(slot)
		if renewed {
			next = next.Renewed(slot, t.cfg.Now())
		}
		switch {
		case len(ask) > 0 && !mayBlock:
			err = errWouldBlock
		case len(ask) > 0 && !fresh: // a slot may be refused only by a lock that was just read
			t.locks.forget(slot.Job)
			seen, ended, fresh, err = t.recall(ctx, mayBlock)
		case len(ask) > 0:
			err = t.findEnded(ctx, ask, ended)
		case next.Same(seen.Lock) && !renewed:
			return t.applyAdmission(admission, entrant, next)
		default:
			t.locks.send(ctx, next, seen, t.cfg.Table.nonce(t.cfg.Node.Name()), func(err error) {
				defer t.recovered()
				switch {
				case err == nil:
					t.wakeAll(next.Next(entrant.Places)) // the write removed slots that had ended
					t.applyAdmission(admission, entrant, next)
				case errors.Is(err, job.ErrConflict): // ask again
					l.releaseTurns()
					l.conflicts++
				default:
					l.releaseTurns()
					l.err = err
				}
				t.advance(false)
			})
			return handed
		}
	}
	l.releaseTurns()
	switch {
	case errors.Is(err, errWouldBlock):
		return wouldBlock
	case err != nil:
		return t.postpone(err)
	}
	l.contended = true
	return t.applyAdmission(core.Admission{Kind: core.AdmissionCrowded}, entrant, core.Lock{})
}

// maxAsks bounds how often a task asks its job's lock. After that, the lock counts as contended.
const maxAsks = 4 * maxRounds

// takeTurns takes the turns to change the lock. If it may not block, it takes them only if they
// are free. A slot that has waited takes only the second, so it goes before slots that have just
// arrived.
func (t *task) takeTurns(ctx context.Context, mayBlock bool) bool {
	l, of := &t.lock, t.locks.turns(t.d.Slot.Job)
	turns := []chan struct{}{of.enter, of.change}
	if l.waited {
		turns = turns[1:]
	}
	for _, turn := range turns {
		if !take(ctx, turn, mayBlock) {
			return false
		}
		l.turns = append(l.turns, turn)
	}
	return true
}

// applyAdmission puts the lock's answer into the view, whether it admits the slot or not. The
// next step is to decide. stored is the stored lock that gave the answer.
func (t *task) applyAdmission(admission core.Admission, entrant core.Entrant, stored core.Lock) flow {
	l := &t.lock
	l.releaseTurns()
	l.asks, l.conflicts, l.skips = 0, 0, entrant.Policy == job.OverlapSkip && entrant.Places == 1
	if stay, in := stored.Stay(t.d.Slot.Whole()); in {
		l.entered, l.since, l.revision = true, stay.Since, t.view.Revision
	}
	t.view.Admission, t.state = admission, deciding
	return onward
}

// recall returns the lock of the slot's job, from memory or by a read. fresh is true if it was read
// just now. ended is new at each call, because a slot that had ended may have been reopened and
// have entered again. It has the lock's only slot if that is known to have ended.
func (t *task) recall(ctx context.Context, mayBlock bool) (seen seenLock, ended map[job.Slot]bool, fresh bool, err error) {
	if mayBlock {
		seen, fresh, err = t.locks.get(ctx, t.d.Slot.Job)
	} else {
		seen, err = t.locks.guess(t.d.Slot.Job)
	}
	if err != nil {
		return seen, nil, false, fmt.Errorf("read the lock of job %s: %w", t.d.Slot.Job, err)
	}
	ended = map[job.Slot]bool{}
	if seen.holderEnded && !seen.Holds(t.d.Slot.Whole()) {
		ended[seen.Holders[0].Slot] = true
	}
	return seen, ended, fresh, nil
}

// backOff waits before the next write of a lock. conflicts is how many writes in a row were
// refused. It does not wait after the first refusal, and waits longer after each further one, up
// to half a second. It returns false if ctx ends.
func backOff(ctx context.Context, conflicts int) bool {
	if conflicts < 2 {
		return ctx.Err() == nil
	}
	d := 5 * time.Millisecond << min(conflicts, 6)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// findEnded reads which of the slots in the lock have an outcome, and stores that in ended. It
// always asks the ledger's leader, even about a slot that this node works on: the slot may have
// ended, and the node may be handling a second copy of its message. A slot without a record has
// not ended, unless it will never begin: see isOver.
func (t *task) findEnded(ctx context.Context, slots []core.LockSlot, ended map[job.Slot]bool) error {
	for _, s := range slots {
		rec, _, err := t.readSlot(ctx, s.Slot)
		if err != nil {
			return fmt.Errorf("look for the outcome of a slot in the lock: %w", err)
		}
		ended[s.Slot] = rec == nil && t.isOver(s) || rec != nil && rec.State.Final()
	}
	return nil
}

// isOver reports whether a slot in the lock, which has no record, will never have one. There are
// two such cases. The slot is older than the horizon plus a lease: the lease covers a worker
// that was suspended after it had checked the slot's age and before its claim. Or the job was
// deleted, and the slot entered the lock more than a lease ago. isOver is false while the clock
// is not plausible.
func (t *task) isOver(s core.LockSlot) bool {
	now := t.cfg.Now()
	return t.cfg.Plausible() == nil &&
		(now.Sub(s.At) > t.cfg.Horizon+t.cfg.Lease || t.view.Entry == nil && now.Sub(s.Since) > t.cfg.Lease)
}

// leave takes the slot, which has its outcome, out of its job's lock, and wakes the slots that
// the lock admits in its place. If that fails, the next slot that asks the lock finds the
// outcome.
//
// A short slot under "skip" is left in the lock if no other is known to wait there: see
// docs/decisions/0030-a-short-slot-is-left-in-its-lock.md.
func (t *task) leave(mayBlock bool) flow {
	short := t.lock.skips && t.cfg.Now().Sub(t.lock.since) < minRecheck
	switch {
	case short && t.locks.noteEnded(t.d.Slot.Whole(), t.lock.since):
		t.waitlist.wakeOne(t.d.Slot.Job)
		return t.close()
	case !mayBlock:
		return wouldBlock
	}
	ctx, cancel := context.WithTimeout(t.cfg.Life, t.cfg.Lease)
	defer cancel()
	places := 1
	// The slot may have run for hours: the current definition says how many slots may run at
	// once.
	if e, err := t.cfg.Registry.Lookup(ctx, t.d.Slot.Job, t.d.JobRevision); err == nil {
		if !e.Job.Guarded() {
			return t.close()
		}
		places = e.Job.Places()
	}
	if err := t.removeFromLock(ctx, places); err != nil {
		t.cfg.Logger.Warn("slot not removed from its job's lock; the next slot that asks the lock removes it", "slot", t.d.Slot.ID(), "error", err)
	}
	return t.close()
}

// removeFromLock takes the slot out of the lock. After a conflict it retries until ctx ends. places
// is how many slots of the job may run at once.
func (t *task) removeFromLock(ctx context.Context, places int) error {
	turns := t.locks.turns(t.d.Slot.Job)
	if !take(ctx, turns.change, true) {
		return context.Cause(ctx)
	}
	defer func() { <-turns.change }()
	for conflicts := 0; ; {
		seen, _, err := t.locks.get(ctx, t.d.Slot.Job)
		if err != nil {
			return err
		}
		if stay, in := seen.Stay(t.d.Slot.Whole()); !in || !stay.Since.Equal(t.lock.since) {
			return nil
		}
		next, woken := seen.Leave(t.d.Slot.Whole(), places)
		err = t.locks.put(ctx, next, seen, t.cfg.Table.nonce(t.cfg.Node.Name()))
		switch {
		case err == nil:
			t.wakeAll(woken)
			if len(next.Holders) < places {
				t.waitlist.wakeOne(t.d.Slot.Job)
			}
			return nil
		case !errors.Is(err, job.ErrConflict):
			return err
		}
		if conflicts++; !backOff(ctx, conflicts) {
			return err
		}
	}
}

// wakeAll wakes waiting slots that have a place in the lock, or get one if they ask for it.
func (t *task) wakeAll(slots []core.LockSlot) {
	for _, s := range slots {
		t.cfg.Wake(s.Slot)
	}
}
