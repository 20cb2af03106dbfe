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

// locks remembers the locks that this consumer wrote. So a slot enters a free lock with one
// write and no read: if the remembered revision is not the last one, the write is refused.
// Before a remembered lock refuses a slot because of other slots in it, the task reads the lock.
type locks struct {
	Locks
	mu         sync.Mutex
	seen       map[string]*seenLock // an entry is replaced as a whole; only its field holderEnded changes
	turnsByJob map[string]turns

	// lastMissExisted: the last lock that was not in memory existed on the broker. guess assumes
	// the same of the next one. After a restart most jobs have a lock. New jobs have none.
	lastMissExisted bool
}

type seenLock struct {
	core.Lock
	revision uint64
	at       time.Time

	// holderEnded: the only slot in the lock has ended. This process wrote its outcome, and the slot
	// has not begun a new stay since.
	holderEnded bool
}

// fullFor is how long the waiting list of a remembered lock is assumed to stay full. If the
// assumption is wrong, a slot only asks the lock later.
const fullFor = time.Second

// maxSeen bounds the remembered locks. A lock that is forgotten costs a read, or a refused
// write.
const maxSeen = 20_000

func newLocks(l Locks) *locks {
	return &locks{Locks: l, seen: map[string]*seenLock{}, turnsByJob: map[string]turns{}}
}

// errWouldBlock says that a step cannot go on without blocking.
var errWouldBlock = errors.New("the lock has to be read")

// get returns the job's lock, from memory if it is there. read is true if it had to read the
// lock.
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

// guess returns the job's lock from memory, without a read. If it is not there, and the last
// cache miss found no lock on the broker, it returns an empty lock: the write over a wrong guess
// is refused. Otherwise it returns errWouldBlock, since the lock has to be read.
func (l *locks) guess(name string) (seenLock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen := l.seen[name]; seen != nil {
		return *seen, nil
	}
	if l.lastMissExisted {
		return seenLock{}, errWouldBlock
	}
	return seenLock{Lock: core.Lock{Job: name}}, nil
}

// put stores next if the lock has not changed since it was seen.
func (l *locks) put(ctx context.Context, next core.Lock, seen seenLock, nonce string) error {
	next.Job, next.Nonce = seen.Job, nonce
	revision, err := l.Write(ctx, next, seen.revision)
	l.remember(next, seen, revision, err)
	return err
}

// send is put without waiting: answered is called with what put returns. answered must not block.
func (l *locks) send(ctx context.Context, next core.Lock, seen seenLock, nonce string, answered func(error)) {
	next.Job, next.Nonce = seen.Job, nonce
	l.Send(ctx, next, seen.revision, func(revision uint64, err error) {
		l.remember(next, seen, revision, err)
		answered(err)
	})
}

// remember keeps the lock next in memory if it was stored over seen. After an error it forgets
// the job's lock.
func (l *locks) remember(next core.Lock, seen seenLock, revision uint64, err error) {
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

// noteEnded notes in memory that a slot which entered its lock at since has ended. It returns
// false if the lock may hold other slots, or if the slot has entered it again.
func (l *locks) noteEnded(s job.Slot, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen[s.Job]
	if seen == nil || len(seen.Waiting) > 0 || len(seen.Holders) != 1 || seen.Holders[0].Slot != s || !seen.Holders[0].Since.Equal(since) {
		return false
	}
	seen.holderEnded = true
	return true
}

// turns serialise the changes that this consumer makes to a job's lock. Without them, many slots
// that arrive at once would cause each other's writes to be refused. A slot that enters takes
// enter and then change. A slot that leaves, or that has waited for the lock, takes only change,
// so it waits behind at most one slot that has just arrived.
type turns struct{ enter, change chan struct{} }

func (l *locks) turns(name string) turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.turnsByJob[name]
	if !ok {
		if len(l.turnsByJob) >= maxSeen {
			clear(l.turnsByJob) // two turns at once cost only a refused write
		}
		t = turns{make(chan struct{}, 1), make(chan struct{}, 1)}
		l.turnsByJob[name] = t
	}
	return t
}

// take takes a turn. If it may not block, it takes the turn only if it is free. It returns false
// if it did not get the turn, or ctx ended first.
func take(ctx context.Context, turn chan struct{}, mayBlock bool) bool {
	select {
	case turn <- struct{}{}:
		return true // usually the turn is free
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

// full reports whether the waiting list of the job's lock was full a moment ago, and the slot
// was not in the lock.
func (l *locks) full(name string, slot job.Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	return s != nil && len(s.Waiting) >= core.MaxLockWaiting && !s.Has(slot) && time.Since(s.at) < fullFor
}

func (l *locks) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, name)
}
