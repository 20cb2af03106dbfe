package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cronce-io/cronce/job"
)

// Locks is where the jobs' locks are kept. kv.Locks satisfies it; its errors are
// those of Ledger.
type Locks interface {
	Read(ctx context.Context, name string) (job.Lock, uint64, error)
	Write(ctx context.Context, l job.Lock, revision uint64) (uint64, error)
}

// locks remembers the locks as they were last seen, so that a free one is taken
// with one write and no read: the revision that the write names decides whether
// the memory was right. Whoever would be refused by a remembered lock reads it
// first.
type locks struct {
	Locks
	mu     sync.Mutex
	seen   map[string]*seenLock // each of which is not written to any more, but for over
	queues map[string]turns     // by job
}

type seenLock struct {
	job.Lock
	revision uint64
	at       time.Time

	// over says that its only slot has ended, in the stay that it names: this process
	// has written its outcome.
	over bool
}

// fresh is how long a remembered lock is taken at its word that it is full: that
// decides nothing but when to ask again.
const fresh = time.Second

// maxSeen bounds the memory: what is forgotten costs a read.
const maxSeen = 20_000

func newLocks(l Locks) *locks {
	return &locks{Locks: l, seen: map[string]*seenLock{}, queues: map[string]turns{}}
}

// get is the job's lock, remembered if there is a memory of it.
func (l *locks) get(ctx context.Context, name string) (s seenLock, remembered bool, err error) {
	l.mu.Lock()
	if seen := l.seen[name]; seen != nil {
		s, remembered = *seen, true
	}
	l.mu.Unlock()
	if remembered {
		return s, true, nil
	}
	s.Lock, s.revision, err = l.Read(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		s.Lock, err = job.Lock{Job: name}, nil
	}
	return s, false, err
}

// put stores the lock over the one that was seen.
func (l *locks) put(ctx context.Context, next job.Lock, seen seenLock, nonce string) error {
	next.Job, next.Nonce = seen.Job, nonce
	revision, err := l.Write(ctx, next, seen.revision)
	if err != nil {
		l.forget(seen.Job)
		return err
	}
	stored := &seenLock{Lock: next, revision: revision, at: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seen) >= maxSeen {
		clear(l.seen)
	}
	l.seen[next.Job] = stored
	return nil
}

// over notes that a slot has ended in the stay that began at since. It is false when
// there may be more in its lock than that slot, or another stay of it.
func (l *locks) over(s job.Slot, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen[s.Job]
	if seen == nil || len(seen.Waiting) > 0 || len(seen.Holders) != 1 || seen.Holders[0].Slot != s || !seen.Holders[0].Since.Equal(since) {
		return false
	}
	seen.over = true
	return true
}

// turns are what the slots of one job in this process take to change its lock: of a
// crowd that comes at once, each would have its write refused by another's. Those
// who enter stand in line, so that one who leaves waits for one of them at most.
type turns struct{ enter, change chan struct{} }

func (l *locks) turns(name string) turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.queues[name]
	if !ok {
		t = turns{make(chan struct{}, 1), make(chan struct{}, 1)}
		l.queues[name] = t
	}
	return t
}

// take waits for a turn; false: ctx ended first.
func take(ctx context.Context, turn chan struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true // most find nobody there, and need not join those who wait for ctx
	default:
	}
	select {
	case turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// full reports whether, as was seen a moment ago, no more slots can wait in the job's
// lock, and the slot does not.
func (l *locks) full(name string, slot job.Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	return s != nil && len(s.Waiting) >= job.MaxLockWaiting && !s.Has(slot) && time.Since(s.at) < fresh
}

func (l *locks) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
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
		if t.locks.full(name, t.d.Slot.Whole()) && job.NewEntrant(t.d, t.view).InLine() {
			t.view.Place = job.Place{Kind: job.PlaceCrowded}
			return nil
		}
	}
	if !take(ctx, turns.change) {
		return fmt.Errorf("enter the lock of job %s: %w", name, context.Cause(ctx))
	}
	defer func() { <-turns.change }()
	entrant := job.NewEntrant(t.d, t.view)
	t.skips = entrant.Policy == job.OverlapSkip && entrant.Places == 1
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
		t.view.Place = place
		if stay, in := next.Stay(t.d.Slot.Whole()); in {
			t.entered, t.since = true, stay.Since
		}
		return nil
	}
	t.view.Place, t.outfought = job.Place{Kind: job.PlaceCrowded}, true
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
	if seen.over && !seen.Holds(t.d.Slot.Whole()) {
		ended[seen.Holders[0].Slot] = true
	}
	return seen, remembered, nil
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
func (t *task) reenters(next job.Lock) bool {
	return !t.entered && (t.d.Backfill || t.d.Offer > 0) && next.Has(t.d.Slot.Whole())
}

// learn finds out which of the slots have an outcome. Only a record says so, as
// the ledger's leader has it, also of a slot that this node has in hand: it may be
// the second copy of one that has ended long ago, of which nobody knows yet. One
// without a record has none yet, unless it is too old ever to run: by a lease, since
// its worker may have judged its age, and slept before the claim. If the job was deleted
// it will not run either: who has not heard of that has had a lease to claim it.
func (t *task) learn(ctx context.Context, slots []job.LockSlot, ended map[job.Slot]bool) error {
	for _, s := range slots {
		rec, _, err := t.cfg.Ledger.Read(ctx, s.Slot)
		switch {
		case errors.Is(err, job.ErrNotFound):
			ended[s.Slot] = t.cfg.Now().Sub(s.At) > t.cfg.Horizon+t.cfg.Lease || t.view.Entry == nil && t.cfg.Now().Sub(s.Since) > t.cfg.Lease
		case err != nil:
			return fmt.Errorf("read slot %s, which is in the way: %w", s.Slot, err)
		default:
			ended[s.Slot] = rec.State.Final()
		}
	}
	return nil
}

// leave takes the slot, which has its outcome, out of its job's lock, and wakes
// those that have the place now. What fails here is mended by the next slot that
// asks: a holder with an outcome holds nothing.
//
// So one that was short is left in the lock when nobody is known to wait there: the
// next one takes its place with the same write with which it enters. Few wait for
// their turn where slots are skipped, and they look for themselves before long.
func (t *task) leave() {
	if t.skips && t.cfg.Now().Sub(t.since) < look && t.locks.over(t.d.Slot.Whole(), t.since) {
		t.lots.wakeOne(t.d.Slot.Job)
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
