package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Locks is where the jobs' locks are kept. kv.Locks satisfies it; its errors are
// those of Ledger.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
	Write(ctx context.Context, l core.Lock, revision uint64) (uint64, error)

	// Send is Write for those who do not wait: see Ledger.Send.
	Send(ctx context.Context, l core.Lock, revision uint64, answered func(uint64, error))
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

	// stand says that the last one that was not remembered stood there. Most do after
	// a start, and none do where the jobs are new.
	stand bool
}

type seenLock struct {
	core.Lock
	revision uint64
	at       time.Time

	// over says that its only slot has ended, in the stay that it names: this process
	// has written its outcome.
	over bool
}

// fresh is how long a remembered lock is taken at its word that it is full: that
// decides nothing but when to ask again.
const fresh = time.Second

// maxSeen bounds the memory: what is forgotten costs a read, or a write that is refused.
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
	l.mu.Lock()
	l.stand = err == nil
	l.mu.Unlock()
	if errors.Is(err, job.ErrNotFound) {
		s.Lock, err = core.Lock{Job: name}, nil
	}
	return s, false, err
}

// guess is the job's lock as it is remembered, or none at all where there were none
// before: what is written over a wrong guess is refused. It is false when the lock has
// to be read.
func (l *locks) guess(name string) (seenLock, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen := l.seen[name]; seen != nil {
		return *seen, true
	}
	return seenLock{Lock: core.Lock{Job: name}}, !l.stand
}

// put stores the lock over the one that was seen.
func (l *locks) put(ctx context.Context, next core.Lock, seen seenLock, nonce string) error {
	next.Job, next.Nonce = seen.Job, nonce
	revision, err := l.Write(ctx, next, seen.revision)
	l.learn(next, seen, revision, err)
	return err
}

// send is put for those who do not wait: told is what put returns, and must not block.
func (l *locks) send(ctx context.Context, next core.Lock, seen seenLock, nonce string, told func(error)) {
	next.Job, next.Nonce = seen.Job, nonce
	l.Send(ctx, next, seen.revision, func(revision uint64, err error) {
		l.learn(next, seen, revision, err)
		told(err)
	})
}

// learn remembers what came of a write over the lock that was seen.
func (l *locks) learn(next core.Lock, seen seenLock, revision uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.stand = l.stand || seen.revision == 0
		delete(l.seen, next.Job)
		return
	}
	if len(l.seen) >= maxSeen {
		clear(l.seen)
	}
	l.seen[next.Job] = &seenLock{Lock: next, revision: revision, at: time.Now()}
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
		if len(l.queues) >= maxSeen {
			clear(l.queues) // who has his turn keeps it; two at once are no harm, but for a refused write
		}
		t = turns{make(chan struct{}, 1), make(chan struct{}, 1)}
		l.queues[name] = t
	}
	return t
}

// take waits for a turn; false: ctx ended first.
func take(ctx context.Context, turn chan struct{}) bool {
	if tryTake(turn) {
		return true // most find nobody there, and need not join those who wait for ctx
	}
	select {
	case turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func tryTake(turn chan struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// tryBoth takes both turns, or none.
func (t turns) tryBoth() bool {
	if !tryTake(t.enter) {
		return false
	}
	if !tryTake(t.change) {
		<-t.enter
		return false
	}
	return true
}

func (t turns) leaveBoth() {
	<-t.change
	<-t.enter
}

// full reports whether, as was seen a moment ago, no more slots can wait in the job's
// lock, and the slot does not.
func (l *locks) full(name string, slot job.Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	return s != nil && len(s.Waiting) >= core.MaxLockWaiting && !s.Has(slot) && time.Since(s.at) < fresh
}

func (l *locks) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
}
