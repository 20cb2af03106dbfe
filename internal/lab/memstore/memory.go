// Package memstore is a store for tests. It keeps in maps what package kv keeps on JetStream, and
// returns the same errors. Tests can make its reads and writes fail. The tests of package kv run on
// both stores (conformance_test.go).
//
// Timestamps come from time.Now, so they are fake inside testing/synctest.
package memstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Fault is what goes wrong with a write.
type Fault int

const (
	None        Fault = iota // the write is stored, and the caller gets the answer
	LostAnswer               // the write is stored, but the caller gets job.ErrUnknown
	LostRequest              // the write is not stored, and the caller gets job.ErrUnknown
	Late                     // the caller gets job.ErrUnknown, and Bucket.Land stores the write later
	Refused                  // the write is not stored, and the caller gets ErrRefused
)

// ErrRefused is a definite refusal that is not a conflict, like a full disk.
var ErrRefused = errors.New("maximum bytes exceeded")

// Store is one namespace. New creates it.
type Store struct {
	ledger, jobs, nodes, state *Bucket
	lines                      *Lines
}

// New returns an empty namespace.
func New() *Store {
	lines := &Lines{ids: map[string]uint64{}, entries: map[string][]core.Entry{}}
	return &Store{newBucket("ledger"), newBucket("jobs"), newBucket("nodes"), newBucket("state"), lines}
}

func (s *Store) Ledger() *Ledger { return &Ledger{s.ledger} }

func (s *Store) Jobs() *Jobs { return &Jobs{s.jobs} }

func (s *Store) Nodes() *Nodes { return &Nodes{s.nodes} }

func (s *Store) Watermark() *Watermark { return &Watermark{s.state} }

func (s *Store) AlertStates() *AlertStates { return &AlertStates{s.state} }

// Locks shares a bucket with AlertStates and Watermark, so the faults of one apply to all three.
func (s *Store) Locks() *Locks { return &Locks{s.state} }

func (s *Store) Lines() *Lines { return s.lines }

// Bucket is a KV bucket in memory: a map with revisions.
type Bucket struct {
	name string

	mu      sync.Mutex
	last    uint64
	entries map[string]entry
	late    []write
	fault   func(key string) Fault
	failure func(key string) error // the error of a read; nil: no read fails
	changed chan struct{}          // closed and replaced at every change
}

type entry struct {
	key      string
	data     []byte // nil: a delete marker
	revision uint64
	at       time.Time
}

type write struct {
	key      string
	data     []byte // nil: a delete marker
	revision uint64 // the last revision of the key that the writer expects
}

func newBucket(name string) *Bucket {
	return &Bucket{name: name, entries: map[string]entry{}, changed: make(chan struct{})}
}

// Fail makes f choose the fault of every later write. If f is nil, no write fails.
func (b *Bucket) Fail(f func(key string) Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

// FailNext gives these faults to the next writes, in order. Later writes have none.
func (b *Bucket) FailNext(faults ...Fault) {
	b.Fail(func(string) Fault { // called with the bucket locked
		if len(faults) == 0 {
			return None
		}
		next := faults[0]
		faults = faults[1:]
		return next
	})
}

// FailReads makes every later read of a key return the error of f, unless that error is nil. If f is
// nil, no read fails.
func (b *Bucket) FailReads(f func(key string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = f
}

// Land stores the late writes, in order, except those whose expected revision is not the last one
// any more. It returns how many of them are stored then, including those whose value already was.
func (b *Bucket) Land() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	landed := 0
	for _, w := range b.late {
		if _, err := b.store(w); err == nil {
			landed++
		}
	}
	b.late = nil
	return landed
}

// Forget removes the key and leaves no delete marker, as when a key expires.
func (b *Bucket) Forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, key)
	b.signal()
}

func (b *Bucket) read(ctx context.Context, key string) (entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return entry{}, fmt.Errorf("read %s/%s: %w: %w", b.name, key, job.ErrUnknown, err)
	}
	if b.failure != nil {
		if err := b.failure(key); err != nil {
			return entry{}, fmt.Errorf("read %s/%s: %w", b.name, key, err)
		}
	}
	e := b.entries[key]
	if e.data == nil {
		return e, fmt.Errorf("%s/%s: %w", b.name, key, job.ErrNotFound)
	}
	return e, nil
}

func get[T any](ctx context.Context, b *Bucket, key string, decode func(data []byte) (T, error)) (v T, revision uint64, err error) {
	e, err := b.read(ctx, key)
	if err == nil {
		v, err = decode(e.data)
	}
	return v, e.revision, err
}

func (b *Bucket) put(ctx context.Context, key, nonce string, value json.Marshaler, revision uint64) (uint64, error) {
	if nonce == "" {
		return 0, fmt.Errorf("%w value for %s/%s: it has no nonce", job.ErrInvalid, b.name, key)
	}
	data, err := value.MarshalJSON()
	if err != nil {
		return 0, err
	}
	return b.write(ctx, write{key, data, revision})
}

func (b *Bucket) write(ctx context.Context, w write) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unknown := func(err error) error {
		return fmt.Errorf("write %s/%s at revision %d: %w: it may have happened: %w", b.name, w.key, w.revision, job.ErrUnknown, err)
	}
	if err := ctx.Err(); err != nil {
		return 0, unknown(err)
	}
	fault := None
	if b.fault != nil {
		fault = b.fault(w.key)
	}
	switch fault {
	case LostRequest:
		return 0, unknown(context.DeadlineExceeded)
	case Late:
		b.late = append(b.late, w)
		return 0, unknown(context.DeadlineExceeded)
	case Refused:
		return 0, fmt.Errorf("write %s/%s: %w", b.name, w.key, ErrRefused)
	}
	won, err := b.store(w)
	if fault == LostAnswer {
		return 0, unknown(context.DeadlineExceeded)
	}
	return won, err
}

// store stores a write if the revision that it expects is the last one. If the key already has the
// value of the write, the write is a repetition, and store returns the revision of that value.
func (b *Bucket) store(w write) (uint64, error) {
	now := b.entries[w.key]
	if now.revision != w.revision {
		if now.revision > w.revision && w.data != nil && string(now.data) == string(w.data) {
			return now.revision, nil
		}
		return 0, fmt.Errorf("write %s/%s at revision %d: %w: the last is %d", b.name, w.key, w.revision, job.ErrConflict, now.revision)
	}
	b.last++
	b.entries[w.key] = entry{w.key, w.data, b.last, time.Now()}
	b.signal()
	return b.last, nil
}

func (b *Bucket) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// snapshot returns all entries, with delete markers, oldest write first. It also returns the last
// revision, and a channel that is closed at the next change.
func (b *Bucket) snapshot() (all []entry, last uint64, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y entry) int { return int(x.revision) - int(y.revision) })
	return all, b.last, b.changed
}

// watch calls stored with each existing entry, then ready once, and then stored or gone with each key
// that has changed. Of several quick changes of a key it may report only the last.
func (b *Bucket) watch(ctx context.Context, stored, gone func(entry), ready func(last uint64)) error {
	seen := map[string]entry{}
	for first := true; ; first = false {
		all, last, changed := b.snapshot()
		there := map[string]bool{}
		for _, e := range all {
			there[e.key] = true
			if seen[e.key].revision == e.revision {
				continue
			}
			seen[e.key] = e
			if e.data != nil {
				stored(e)
			} else if !first {
				gone(e)
			}
		}
		for key, e := range seen {
			if there[key] {
				continue
			}
			delete(seen, key)
			if e.data != nil {
				gone(entry{key: key, revision: last})
			}
		}
		if first {
			ready(last)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

const watermarkKey = "watermark"
