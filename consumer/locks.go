package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// maxRemembered bounds the locks in memory. A lock takes some 300 bytes, and one that is not
// there costs a read.
const maxRemembered = 200_000

// lockMemory remembers the locks as this consumer last read or wrote them. So a slot enters a free lock
// with one write and no read: if the lock has changed since, the write is refused. It is safe for
// concurrent use.
type lockMemory struct {
	mu   sync.Mutex
	seen map[string]seenLock

	// lastMissExisted: the last lock that was not in memory existed on the broker. The next one is
	// assumed to be like it, since a write over a wrong guess is refused. After a restart most jobs
	// have a lock. New jobs have none.
	lastMissExisted bool
}

type seenLock struct {
	core.Lock
	revision uint64
	line     readAhead
}

// readAhead is what was read of a job's line ahead of the calls: the entries that may still count, in
// stream order, and the sequence from which on nothing was read.
type readAhead struct {
	entries []core.Entry
	next    uint64
}

// from returns the entries at or after a sequence. If they were not read, it returns none.
func (a readAhead) from(sequence uint64) readAhead {
	i := slices.IndexFunc(a.entries, func(e core.Entry) bool { return e.Sequence >= sequence })
	if i < 0 || i == 0 && a.entries[0].Sequence > sequence {
		return readAhead{next: sequence}
	}
	return readAhead{entries: a.entries[i:], next: a.next}
}

func newLockMemory() lockMemory { return lockMemory{seen: map[string]seenLock{}} }

// get returns the job's lock, from memory or by a read. fresh is true if it was read just now.
func (m *lockMemory) get(ctx context.Context, stored Locks, name string) (s seenLock, fresh bool, err error) {
	m.mu.Lock()
	s, known := m.seen[name]
	guess := !known && !m.lastMissExisted
	m.mu.Unlock()
	switch {
	case known:
		return s, false, nil
	case guess:
		return seenLock{Lock: core.Lock{Job: name}}, false, nil
	}
	return m.read(ctx, stored, name)
}

// read reads the job's lock from the broker.
func (m *lockMemory) read(ctx context.Context, stored Locks, name string) (s seenLock, fresh bool, err error) {
	s.Lock, s.revision, err = stored.Read(ctx, name)
	missing := errors.Is(err, job.ErrNotFound)
	if err != nil && !missing {
		return s, true, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastMissExisted = !missing
	s.line = m.seen[name].line
	if missing {
		s.Lock = core.Lock{Job: name}
	}
	return s, true, nil
}

// put remembers a lock. If there are too many, it forgets another one.
func (m *lockMemory) put(name string, s seenLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[name]; !known && len(m.seen) >= maxRemembered {
		for other := range m.seen {
			delete(m.seen, other)
			break
		}
	}
	m.seen[name] = s
}

// forget forgets a lock that another node has written, or may have written.
func (m *lockMemory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[name]; !known {
		m.lastMissExisted = true
	}
	delete(m.seen, name)
}
