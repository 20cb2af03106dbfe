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
	// maxUnlisted bounds the slots that one consumer keeps in hand although their
	// lock does not list them; what comes beyond that is given back for a while.
	// maxListed bounds the others: one that is given back holds up its job when its
	// turn comes.
	maxUnlisted = 1000
	maxListed   = 10_000

	// look is how soon the first of those that wait looks at the lock again by
	// itself, should nobody wake it; each further one later, none later than
	// lookAtLast.
	look       = time.Second
	lookAtLast = 30 * time.Second

	// comeBack is about how long a message is given back for that is not kept, times
	// how often it has come.
	comeBack     = 2 * time.Second
	comeBackMost = 15
)

// lots is where slots wait, in the hand of this process, for their turn in their
// job's lock. They take no place from handlers meanwhile.
type lots struct {
	listen func(name string, woken func(job.Slot)) (stop func())

	mu               sync.Mutex
	byJob            map[string]*lot
	listed, unlisted int
}

// lot is the parked slots of one job. It listens while there are any.
type lot struct {
	slots map[job.Slot]chan struct{}
	stop  func()

	// unlisted are those of them that are not in the lock: nobody else knows of
	// them.
	unlisted map[job.Slot]struct{}
}

func newLots(listen func(string, func(job.Slot)) func()) *lots {
	return &lots{listen: listen, byJob: map[string]*lot{}}
}

// enter parks a slot; woken is closed when its turn may have come. ok is false when
// there is no room.
func (l *lots) enter(s job.Slot, listed bool) (woken <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if listed && l.listed >= maxListed || !listed && l.unlisted >= maxUnlisted {
		return nil, false
	}
	l.count(listed, 1)
	here := l.byJob[s.Job]
	if here == nil {
		here = &lot{slots: map[job.Slot]chan struct{}{}, unlisted: map[job.Slot]struct{}{}}
		here.stop = l.listen(s.Job, l.wake)
		l.byJob[s.Job] = here
	}
	c := make(chan struct{})
	here.slots[s] = c
	if !listed {
		here.unlisted[s] = struct{}{}
	}
	return c, true
}

// count is called with l.mu held.
func (l *lots) count(listed bool, by int) {
	if listed {
		l.listed += by
	} else {
		l.unlisted += by
	}
}

// wakeOne wakes one of the job's slots that are not in the lock: nobody waits there
// any more.
func (l *lots) wakeOne(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.byJob[name]
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
func (l *lots) wake(s job.Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.byJob[s.Job]
	if here == nil {
		return
	}
	for parked, woken := range here.slots {
		if parked.Whole() == s && woken != nil {
			close(woken)
			here.slots[parked] = nil
		}
	}
}

func (l *lots) leave(s job.Slot, listed bool) {
	l.mu.Lock()
	here := l.byJob[s.Job]
	delete(here.slots, s)
	delete(here.unlisted, s)
	l.count(listed, -1)
	last := len(here.slots) == 0
	if last {
		delete(l.byJob, s.Job)
	}
	l.mu.Unlock()
	if last {
		here.stop()
	}
}

// park keeps the message in hand until its slot's turn may have come. It reports
// false when the message is to be given back instead, after the returned time.
func (t *task) park(ctx context.Context) (again bool, instead time.Duration) {
	place := t.view.Place
	if place.Displaces != (job.Slot{}) {
		if !t.parked {
			return true, 0 // it may be a second copy of one that has ended: its record is looked at first
		}
		t.displace(ctx, place.Displaces)
	}
	listed := place.Kind == core.PlaceWaits
	woken, ok := t.lots.enter(t.d.Slot, listed)
	if !ok {
		return false, t.comeBack()
	}
	defer t.lots.leave(t.d.Slot, listed)
	// Its turn may have come, and the call gone by, before it was here to hear it.
	if listed {
		if l, _, err := t.cfg.Locks.Read(ctx, t.d.Slot.Job); err == nil && l.Holds(t.d.Slot.Whole()) {
			return true, 0
		}
	}
	t.cfg.Observer.Parked(t.cfg.Queue, 1)
	defer t.cfg.Observer.Parked(t.cfg.Queue, -1)
	t.release()
	timer := time.NewTimer(t.nextLook(place))
	defer timer.Stop()
	select {
	case <-woken:
	case <-timer.C:
	case <-t.stopping:
		return false, 0
	case <-ctx.Done():
		return false, 0
	}
	return true, 0
}

// comeBack is how long a slot is given back for that cannot be kept in hand; longer
// each time.
func (t *task) comeBack() time.Duration {
	d := comeBack * time.Duration(min(max(t.d.Count, 1), comeBackMost))
	return d/2 + rand.N(d)
}

// nextLook is when a parked slot looks again by itself. The one that displaces
// another is in a hurry; one that has a start deadline looks right after it; one that
// may not be told waits no longer than it has waited already.
func (t *task) nextLook(p core.Place) time.Duration {
	d := min(look*time.Duration(p.Ahead+1), lookAtLast)
	switch {
	case t.outfought: // it was not said that the lock is full
		d = look/2 + rand.N(look)
	case p.Kind == core.PlaceCrowded:
		d = lookAtLast/2 + rand.N(lookAtLast/2)
	case t.skips && p.Ahead == 0: // nobody tells it when a short one has ended
		d = min(d, max(t.cfg.Now().Sub(t.since), look/32))
	}
	if p.Displaces != (job.Slot{}) {
		d = look / 4
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

// displace has the holder ended that a newer slot is to replace, with all its
// parts. An error is no harm: the next look finds what there is then.
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
	_, _, _ = t.conclude(ctx, holder) // what follows is for who has its messages
}

// displaceOne ends a slot, or a shard. A running one is its owner's to end: it is
// asked, again at each look. One that waits for its next attempt is nobody's, and is
// ended here.
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
