package memstore

import (
	"context"
	"slices"
	"sync"

	"github.com/cronce-io/cronce/internal/core"
)

// Lines is a stream.Lines in memory.
type Lines struct {
	mu      sync.Mutex
	last    uint64
	ids     map[string]uint64
	entries map[string][]core.Entry // by job
}

// Put stores an entry, and drops a second one with the same ID.
func (l *Lines) Put(_ context.Context, e core.Entry, revision uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := core.EntryID(e.Slot, revision)
	if known := l.ids[id]; known > 0 {
		return known, nil
	}
	l.last++
	e.Sequence = l.last
	l.ids[id] = e.Sequence
	l.entries[e.Slot.Job] = append(l.entries[e.Slot.Job], e)
	return e.Sequence, nil
}

// Read returns up to 50 entries at or after a sequence.
func (l *Lines) Read(_ context.Context, name string, from uint64) ([]core.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.entries[name]
	i := slices.IndexFunc(all, func(e core.Entry) bool { return e.Sequence >= from })
	if i < 0 {
		return nil, nil
	}
	return slices.Clone(all[i:min(len(all), i+50)]), nil
}

// Purge removes the entries before a sequence.
func (l *Lines) Purge(_ context.Context, name string, before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[name] = slices.DeleteFunc(l.entries[name], func(e core.Entry) bool { return e.Sequence < before })
	return nil
}

// Counts returns how many entries each job's line has.
func (l *Lines) Counts(context.Context) (map[string]uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]uint64{}
	for name, all := range l.entries {
		if len(all) > 0 {
			counts[name] = uint64(len(all))
		}
	}
	return counts, nil
}
