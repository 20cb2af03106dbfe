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
	// A listed slot is one of the waiting slots in its job's lock. maxUnlisted bounds the
	// unlisted slots that one consumer keeps; further ones return to the queue with a delay.
	// maxListed bounds the listed ones. It is much larger: if a listed slot has returned to the
	// queue and is then admitted, it blocks the lock until its message is delivered again.
	maxUnlisted = 1000
	maxListed   = 10_000

	// minRecheck is how soon the first waiting slot of a job asks the lock again if nothing wakes
	// it. Each slot behind it asks later, but none later than maxRecheck.
	minRecheck = time.Second
	maxRecheck = 30 * time.Second

	// If the waitlist is full, a message returns to the queue with a delay of about returnDelay
	// times its delivery count, or times maxReturnDelays if that is less.
	returnDelay     = 2 * time.Second
	maxReturnDelays = 15
)

// waitlist holds the slots that this consumer keeps until their job's lock may admit them. They
// hold no permit meanwhile.
type waitlist struct {
	listen func(name string, woken func(job.Slot)) (stop func())

	mu               sync.Mutex
	byJob            map[string]*waitingSlots
	listed, unlisted int
}

// waitingSlots holds the waiting slots of one job. It listens for wake-ups until stop is called.
type waitingSlots struct {
	slots map[job.Slot]chan struct{} // nil for a slot that was woken
	stop  func()

	// unlisted are the slots that are not in the lock. No other process knows of them, so only
	// this one can wake them.
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

// count adds by to the number of listed or unlisted slots. w.mu is held.
func (w *waitlist) count(listed bool, by int) {
	if listed {
		w.listed += by
	} else {
		w.unlisted += by
	}
}

// wakeOne wakes one unlisted slot of the job. The caller has seen that the lock has a free place
// and lists no waiting slot.
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

// wake wakes the slot, or all shards of it.
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

// enterWaitlist keeps the message until the lock may admit its slot, and then asks the lock
// again. If the waitlist is full, or the worker stops, the message returns to the queue.
func (t *task) enterWaitlist() flow {
	ctx, admission := t.cfg.Node.Context(), t.view.Admission
	if admission.Displaces != (job.Slot{}) {
		if !t.lock.waited {
			return t.reenter() // read the record first: this may be a second copy of a slot that has ended
		}
		t.displace(ctx, admission.Displaces)
	}
	listed := admission.Kind == core.AdmissionQueued
	woken, ok := t.waitlist.add(t.d.Slot, listed)
	if !ok {
		d := returnDelay * time.Duration(min(max(t.d.Count, 1), maxReturnDelays))
		return t.returnToQueue(d/2 + rand.N(d))
	}
	defer t.waitlist.remove(t.d.Slot, listed)
	// A place may have become free, and the wake-up may have come, before add.
	if listed {
		places := core.NewEntrant(t.d, t.view).Places
		if l, _, err := t.cfg.Locks.Read(ctx, t.d.Slot.Job); err == nil && l.Admits(t.d.Slot.Whole(), places) {
			return t.reenter()
		}
	}
	if t.cfg.Observer != nil {
		t.cfg.Observer.Parked(t.cfg.Queue, 1)
		defer t.cfg.Observer.Parked(t.cfg.Queue, -1)
	}
	t.releasePermit()
	timer := time.NewTimer(t.recheckDelay(admission))
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-t.stopping:
		return t.returnToQueue(0)
	case <-ctx.Done():
		return t.returnToQueue(0)
	}
	return t.reenter()
}

// returnToQueue ends the delivery of a slot that the waitlist does not keep.
func (t *task) returnToQueue(d time.Duration) flow {
	if t.cfg.Node.Context().Err() != nil {
		return t.respondWith(silence)
	}
	return t.respondWith(later(d))
}

// reenter begins a new round, which asks the job's lock again.
func (t *task) reenter() flow {
	t.lock.waited, t.rounds, t.state = true, 0, loading
	return onward
}

// recheckDelay returns how long a waiting slot waits before it asks the lock again, if nothing
// wakes it. A slot that displaces another asks soon. A slot with a start deadline asks right
// after the deadline at the latest.
func (t *task) recheckDelay(admission core.Admission) time.Duration {
	d := min(minRecheck*time.Duration(admission.Ahead+1), maxRecheck)
	switch {
	case t.lock.contended: // the lock is not full: other workers were only faster to write it
		d = minRecheck/2 + rand.N(minRecheck)
	case admission.Kind == core.AdmissionCrowded:
		d = maxRecheck/2 + rand.N(maxRecheck/2)
	case t.lock.skips && admission.Ahead == 0: // the holder may end without waking this slot (decision 0030): wait no longer than the slot has waited so far
		d = min(d, max(t.cfg.Now().Sub(t.lock.since), minRecheck/32))
	}
	if admission.Displaces != (job.Slot{}) {
		d = minRecheck / 4
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

// displace ends the holder of the lock, with all its shards, because this slot is to replace it.
// If that fails, the slot tries again when it asks the lock again.
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
		if shard, revision, err := t.cfg.Ledger.Read(ctx, holder.WithShard(i+1, rec.Shards)); err == nil {
			t.displaceOne(ctx, shard, revision)
		}
	}
	_, _, _ = t.conclude(ctx, holder) // the worker with the holder's messages publishes what follows
}

// displaceOne ends one slot or shard. If the handler runs, displaceOne asks its owner to end it.
// The request may be lost, so each call repeats it. If the slot waits for its next attempt, it
// has no owner, and displaceOne writes its outcome.
func (t *task) displaceOne(ctx context.Context, rec job.Record, revision uint64) {
	newer := t.d.Slot.Whole()
	switch rec.State {
	case job.Running:
		t.cfg.Cancel(ctx, rec.Node, core.CancelRequest{V: codec.Version, ID: rec.Slot.ID(), Fence: revision, Replaced: true, By: newer.ID()})
	case job.Retrying:
		d := core.Delivery{Message: core.Message{Slot: rec.Slot}}
		end := core.Cancel(d, core.View{Now: t.cfg.Now(), Self: t.cfg.Node.Name(), Record: &rec}, core.ReplacedBy(newer))
		end.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
		if revision, err := t.cfg.Ledger.Write(ctx, end, revision); err == nil {
			t.emit(end, revision)
		}
	}
}
