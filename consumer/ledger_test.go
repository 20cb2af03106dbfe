package consumer_test

import (
	"context"
	"sync"

	"github.com/cronce-io/cronce/job"
)

// hookedLedger is a ledger in memory that a test can make fail. A nil hook does
// nothing.
type hookedLedger struct {
	mu       sync.Mutex
	records  map[string]job.Record
	revision map[string]uint64
	last     uint64

	before func(job.Record, uint64) error
	after  func(job.Record)
}

func newLedger() *hookedLedger {
	return &hookedLedger{records: map[string]job.Record{}, revision: map[string]uint64{}}
}

func (l *hookedLedger) Read(_ context.Context, s job.Slot) (job.Record, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[s.Key()]
	if !ok {
		return job.Record{}, 0, job.ErrNotFound
	}
	return r, l.revision[s.Key()], nil
}

func (l *hookedLedger) Write(_ context.Context, r job.Record, revision uint64) (uint64, error) {
	if l.before != nil {
		if err := l.before(r, revision); err != nil {
			return 0, err
		}
	}
	stored, err := l.store(r, revision)
	if err == nil && l.after != nil {
		l.after(r)
	}
	return stored, err
}

func (l *hookedLedger) store(r job.Record, revision uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := r.Slot.Key()
	if l.revision[key] != revision {
		return 0, job.ErrConflict
	}
	l.last++
	l.records[key], l.revision[key] = r, l.last
	return l.last, nil
}
