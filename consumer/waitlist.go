package consumer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	// maxUnlisted bounds the slots that one consumer keeps although their locks do not
	// list them; further ones are given back for a while. maxListed bounds the others: a
	// listed slot that is given back holds up its job when it is admitted.
	maxUnlisted = 1000
	maxListed   = 10_000

	// firstLook is how soon the first of those that wait looks at the lock again if
	// nothing wakes it. Each further one looks later, none later than lastLook.
	firstLook = time.Second
	lastLook  = 30 * time.Second

	// giveBackBy times the number of its delivery, at most maxGiveBack, is about how long a
	// message is given back for that is not kept.
	giveBackBy  = 2 * time.Second
	maxGiveBack = 15
)

// waitlist is the slots that this process keeps until their job's lock admits them. They
// hold no permit meanwhile.
type waitlist struct {
	listen func(name string, woken func(job.Slot)) (stop func())

	mu               sync.Mutex
	byJob            map[string]*waitingSlots
	listed, unlisted int
}

// waitingSlots are those of one job. It listens while there are any.
type waitingSlots struct {
	slots map[job.Slot]chan struct{}
	stop  func()

	// unlisted are those that are not in the lock: no other process knows of them.
	unlisted map[job.Slot]struct{}
}

func newWaitlist(listen func(string, func(job.Slot)) func()) *waitlist {
	return &waitlist{listen: listen, byJob: map[string]*waitingSlots{}}
}

// add enters a slot. woken is closed when the lock may admit it. ok is false if the list
// is full.
func (w *waitlist) add(s job.Slot, listed bool) (woken <-chan struct{}, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if listed && w.listed >= maxListed || !listed && w.unlisted >= maxUnlisted {
		return nil, false
	}
	w.count(listed, 1)
	here := w.byJob[s.Job]
	if here == nil {
		here = &waitingSlots{slots: map[job.Slot]chan struct{}{}, unlisted: map[job.Slot]struct{}{}}
		here.stop = w.listen(s.Job, w.wake)
		w.byJob[s.Job] = here
	}
	c := make(chan struct{})
	here.slots[s] = c
	if !listed {
		here.unlisted[s] = struct{}{}
	}
	return c, true
}

// count is called with w.mu held.
func (w *waitlist) count(listed bool, by int) {
	if listed {
		w.listed += by
	} else {
		w.unlisted += by
	}
}

// wakeOne wakes one of the job's slots that are not in the lock: none waits in it now.
func (w *waitlist) wakeOne(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	here := w.byJob[name]
	if here == nil {
		return
	}
	for s := range here.unlisted {
		delete(here.unlisted, s)
		if here.slots[s] != nil {
			close(here.slots[s])
			here.slots[s] = nil
			return
		}
	}
}

// wake wakes the slot, and all shards of it.
func (w *waitlist) wake(s job.Slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	here := w.byJob[s.Job]
	if here == nil {
		return
	}
	for slot, woken := range here.slots {
		if slot.Whole() == s && woken != nil {
			close(woken)
			here.slots[slot] = nil
		}
	}
}

func (w *waitlist) remove(s job.Slot, listed bool) {
	w.mu.Lock()
	here := w.byJob[s.Job]
	delete(here.slots, s)
	delete(here.unlisted, s)
	w.count(listed, -1)
	last := len(here.slots) == 0
	if last {
		delete(w.byJob, s.Job)
	}
	w.mu.Unlock()
	if last {
		here.stop()
	}
}

// wait keeps the message until the lock may admit its slot, and looks at the slot again
// then. A message that is not kept is given back.
func (t *task) wait() progress {
	ctx, place := t.cfg.Node.Context(), t.view.Place
	if place.Displaces != (job.Slot{}) {
		if !t.lock.waited {
			return t.askAgain() // it may be a second copy of one that has ended: its record says so
		}
		t.displace(ctx, place.Displaces)
	}
	listed := place.Kind == core.PlaceWaits
	woken, ok := t.waitlist.add(t.d.Slot, listed)
	if !ok {
		d := giveBackBy * time.Duration(min(max(t.d.Count, 1), maxGiveBack))
		return t.giveBack(d/2 + rand.N(d))
	}
	defer t.waitlist.remove(t.d.Slot, listed)
	// The lock may have admitted it, and the wake-up been sent, before it was listed here.
	if listed {
		if l, _, err := t.cfg.Locks.Read(ctx, t.d.Slot.Job); err == nil && l.Holds(t.d.Slot.Whole()) {
			return t.askAgain()
		}
	}
	if t.cfg.Observer != nil {
		t.cfg.Observer.Parked(t.cfg.Queue, 1)
		defer t.cfg.Observer.Parked(t.cfg.Queue, -1)
	}
	t.releasePermit()
	timer := time.NewTimer(t.nextLook(place))
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-t.stopping:
		return t.giveBack(0)
	case <-ctx.Done():
		return t.giveBack(0)
	}
	return t.askAgain()
}

// giveBack ends the delivery of a slot that is not kept any longer.
func (t *task) giveBack(d time.Duration) progress {
	if t.cfg.Node.Context().Err() != nil {
		return t.end(silence)
	}
	return t.end(later(d))
}

// askAgain has the slot looked at anew, with a question to its job's lock.
func (t *task) askAgain() progress {
	t.lock.waited, t.looks, t.view.Place, t.state = true, 0, core.Place{}, looking
	return onward
}

// nextLook is when a waiting slot looks again by itself. One that displaces another looks
// soon, and one that has a start deadline right after it.
func (t *task) nextLook(p core.Place) time.Duration {
	d := min(firstLook*time.Duration(p.Ahead+1), lastLook)
	switch {
	case t.lock.outfought: // the lock is not full
		d = firstLook/2 + rand.N(firstLook)
	case p.Kind == core.PlaceCrowded:
		d = lastLook/2 + rand.N(lastLook/2)
	case t.lock.skips && p.Ahead == 0: // a short slot that ends wakes none: it waits no longer than it has waited already
		d = min(d, max(t.cfg.Now().Sub(t.lock.since), firstLook/32))
	}
	if p.Displaces != (job.Slot{}) {
		d = firstLook / 4
	}
	if t.view.Entry == nil {
		return d
	}
	if by, ok := core.StartBy(t.d, *t.view.Entry); ok {
		if left := by.Sub(t.cfg.Now()) + time.Millisecond; left > 0 {
			d = min(d, left)
		}
	}
	return d
}

// displace ends the holder that a newer slot is to replace, with all its parts. What fails
// here is tried again at the next look.
func (t *task) displace(ctx context.Context, holder job.Slot) {
	rec, revision, err := t.cfg.Ledger.Read(ctx, holder)
	if err != nil {
		return
	}
	if rec.Shards == 0 {
		t.displaceOne(ctx, rec, revision)
		return
	}
	if rec.Error == "" && !rec.State.Final() {
		marked := core.MarkWhole(rec, core.ReplacedBy(t.d.Slot.Whole()))
		marked.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		_, _ = t.cfg.Ledger.Write(ctx, marked, revision)
	}
	for i := range rec.Shards {
		if part, revision, err := t.cfg.Ledger.Read(ctx, holder.Part(i+1, rec.Shards)); err == nil {
			t.displaceOne(ctx, part, revision)
		}
	}
	_, _, _ = t.conclude(ctx, holder) // what follows is published by the worker that has its messages
}

// displaceOne ends a slot, or a shard. If it runs, its owner is asked to end it, again at
// each look. If it waits for its next attempt, it has no owner and is ended here.
func (t *task) displaceOne(ctx context.Context, rec job.Record, revision uint64) {
	by := t.d.Slot.Whole()
	switch rec.State {
	case job.Running:
		t.cfg.Cancel(ctx, rec.Node, core.CancelRequest{V: codec.Version, ID: rec.Slot.ID(), Fence: revision, Replaced: true, By: by.ID()})
	case job.Retrying:
		d := core.Delivery{Message: core.Message{Slot: rec.Slot}}
		end := core.Cancel(d, core.View{Now: t.cfg.Now(), Self: t.cfg.Node.Name(), Record: &rec}, core.ReplacedBy(by))
		end.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		if revision, err := t.cfg.Ledger.Write(ctx, end, revision); err == nil {
			t.emit(end, revision)
		}
	}
}
