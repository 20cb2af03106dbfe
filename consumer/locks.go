package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Locks stores the jobs' locks. kv.Locks satisfies it. Its errors are those of Ledger.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
	Write(ctx context.Context, l core.Lock, revision uint64) (uint64, error)

	// Send is Write without waiting: see Ledger.Send.
	Send(ctx context.Context, l core.Lock, revision uint64, answered func(uint64, error))
}

// locks remembers the locks as they were last seen, so that a free one is entered with one
// write and no read: the revision that the write names decides whether the memory was
// right. A slot that a remembered lock would refuse reads it first.
type locks struct {
	Locks
	mu     sync.Mutex
	seen   map[string]*seenLock // of each only over is written to
	queues map[string]turns     // by job

	// lastMissExisted reports whether the last cache miss found a lock on the broker. After
	// a start most do; where the jobs are new none does.
	lastMissExisted bool
}

type seenLock struct {
	core.Lock
	revision uint64
	at       time.Time

	// over: its only slot has ended, in the stay that the lock names. This process has
	// written its outcome.
	over bool
}

// fresh is how long a remembered lock that is full is believed. That decides only when a
// slot asks again.
const fresh = time.Second

// maxSeen bounds the memory. A lock that is forgotten costs a read, or a refused write.
const maxSeen = 20_000

func newLocks(l Locks) *locks {
	return &locks{Locks: l, seen: map[string]*seenLock{}, queues: map[string]turns{}}
}

// errBlocks says that a step cannot go on without blocking.
var errBlocks = errors.New("the lock has to be read")

// get returns the job's lock, from memory if it is there.
func (l *locks) get(ctx context.Context, name string) (s seenLock, read bool, err error) {
	l.mu.Lock()
	seen := l.seen[name]
	if seen != nil {
		s = *seen
	}
	l.mu.Unlock()
	if seen != nil {
		return s, false, nil
	}
	s.Lock, s.revision, err = l.Read(ctx, name)
	l.mu.Lock()
	l.lastMissExisted = err == nil
	l.mu.Unlock()
	if errors.Is(err, job.ErrNotFound) {
		s.Lock, err = core.Lock{Job: name}, nil
	}
	return s, true, err
}

// guess returns the job's lock as it is remembered, or none if the last cache miss found
// none: a write over a wrong guess is refused. Its error is errBlocks if the lock has to be
// read.
func (l *locks) guess(name string) (seenLock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen := l.seen[name]; seen != nil {
		return *seen, nil
	}
	if l.lastMissExisted {
		return seenLock{}, errBlocks
	}
	return seenLock{Lock: core.Lock{Job: name}}, nil
}

// put stores the lock over the one that was seen.
func (l *locks) put(ctx context.Context, next core.Lock, seen seenLock, nonce string) error {
	next.Job, next.Nonce = seen.Job, nonce
	revision, err := l.Write(ctx, next, seen.revision)
	l.learn(next, seen, revision, err)
	return err
}

// send is put without waiting: answered is called with what put returns. It must not block.
func (l *locks) send(ctx context.Context, next core.Lock, seen seenLock, nonce string, answered func(error)) {
	next.Job, next.Nonce = seen.Job, nonce
	l.Send(ctx, next, seen.revision, func(revision uint64, err error) {
		l.learn(next, seen, revision, err)
		answered(err)
	})
}

// learn remembers the result of a write over the lock that was seen.
func (l *locks) learn(next core.Lock, seen seenLock, revision uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lastMissExisted = l.lastMissExisted || seen.revision == 0
		delete(l.seen, next.Job)
		return
	}
	if len(l.seen) >= maxSeen {
		clear(l.seen)
	}
	l.seen[next.Job] = &seenLock{Lock: next, revision: revision, at: time.Now()}
}

// over notes that a slot has ended in the stay that began at since. It returns false if
// its lock may hold more than that slot, or another stay of it.
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

// turns serialise the changes that this process makes to a job's lock: of many slots that
// come at once, each would have its write refused by another's. Slots that enter take both,
// so that a slot that leaves waits for one of them at most.
type turns struct{ enter, change chan struct{} }

func (l *locks) turns(name string) turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.queues[name]
	if !ok {
		if len(l.queues) >= maxSeen {
			clear(l.queues) // two turns at once cost only a refused write
		}
		t = turns{make(chan struct{}, 1), make(chan struct{}, 1)}
		l.queues[name] = t
	}
	return t
}

// take takes a turn; without blocking, only if it is free. It returns false if it did not
// get the turn, or ctx ended first.
func take(ctx context.Context, turn chan struct{}, mayBlock bool) bool {
	select {
	case turn <- struct{}{}:
		return true // most find it free, and need not wait for ctx
	default:
	}
	if !mayBlock {
		return false
	}
	select {
	case turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// full reports whether the job's lock was full a moment ago, without the slot.
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
