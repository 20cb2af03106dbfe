// Package registry keeps a copy of the jobs' definitions in a process.
//
// The copy is fed by a watch and is a hint: it may lag. Two answers must not come
// from a lagging copy, since a slot would be cancelled for them: "deleted" is
// asked of the registry's leader, and a definition older than the message it is
// wanted for is not given.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cronce-io/cronce/job"
)

// Reader reads one entry at the registry's leader. kv.Jobs satisfies it.
type Reader interface {
	Read(ctx context.Context, name string) (job.Entry, uint64, error)
}

// View is the copy. It is safe for concurrent use.
type View struct {
	reader Reader

	mu      sync.Mutex
	entries map[string]job.Entry
	broken  map[string]error
	after   map[string][]string // the jobs that come after one
	alerts  int                 // jobs that have somebody told
	on      map[string]bool     // jobs that messages start, or once did
	upTo    uint64
	ready   chan struct{}
}

// NewView returns an empty copy; feed it with Apply.
func NewView(r Reader) *View {
	return &View{reader: r, entries: map[string]job.Entry{}, broken: map[string]error{}, after: map[string][]string{}, on: map[string]bool{}, ready: make(chan struct{})}
}

// Apply takes in one event of the registry's watch.
func (v *View) Apply(e job.RegistryEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.upTo = max(v.upTo, e.Revision)
	if !e.Ready {
		v.relate(e)
	}
	switch {
	case e.Ready:
		select {
		case <-v.ready:
		default:
			close(v.ready)
		}
	case e.Deleted:
		delete(v.entries, e.Name)
		delete(v.broken, e.Name)
	case e.Err != nil:
		delete(v.entries, e.Name)
		v.broken[e.Name] = e.Err
	default:
		v.entries[e.Name] = e.Entry
		delete(v.broken, e.Name)
	}
}

// Alerting reports whether any job has somebody told of its slots.
func (v *View) Alerting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alerts > 0
}

// Messaged returns the definitions of the jobs that messages start, or did by a past
// plan. It asks nobody.
func (v *View) Messaged() []job.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	var entries []job.Entry
	for name := range v.on {
		entries = append(entries, v.entries[name])
	}
	return entries
}

// relate keeps what is asked about without a job's name. v.mu is held.
func (v *View) relate(e job.RegistryEvent) {
	for _, name := range v.entries[e.Name].Job.After {
		v.after[name] = slices.DeleteFunc(v.after[name], func(n string) bool { return n == e.Name })
		if len(v.after[name]) == 0 {
			delete(v.after, name)
		}
	}
	alerting := func(j job.Job) bool { return j.OnFailure != nil || j.OnMissed != nil }
	if alerting(v.entries[e.Name].Job) {
		v.alerts--
	}
	delete(v.on, e.Name)
	if e.Deleted || e.Err != nil {
		return
	}
	for _, p := range e.Entry.Plans() {
		if !p.Plan.On.IsZero() {
			v.on[e.Name] = true
		}
	}
	if alerting(e.Entry.Job) {
		v.alerts++
	}
	for _, name := range e.Entry.Job.After {
		v.after[name] = append(v.after[name], e.Name)
	}
}

// After returns the definitions of the jobs that come after the named one, as they
// are known here. It asks nobody.
func (v *View) After(name string) []job.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	var entries []job.Entry
	for _, n := range v.after[name] {
		entries = append(entries, v.entries[n])
	}
	return entries
}

// Ready is closed when all that was stored has been seen once.
func (v *View) Ready() <-chan struct{} { return v.ready }

// Entry is the job's definition as it is known here; false when none is.
func (v *View) Entry(name string) (job.Entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, ok := v.entries[name]
	return e, ok
}

// Lookup returns the job's definition as of registry revision atLeast or later.
// job.ErrNotFound says that the leader has none; other errors, that it cannot be
// said now, or that the stored definition is broken.
func (v *View) Lookup(ctx context.Context, name string, atLeast uint64) (job.Entry, error) {
	v.mu.Lock()
	entry, known := v.entries[name]
	broken, upTo := v.broken[name], v.upTo
	v.mu.Unlock()
	switch {
	case known && upTo >= atLeast:
		return entry, nil
	case broken != nil:
		return job.Entry{}, broken
	}
	entry, _, err := v.reader.Read(ctx, name)
	switch {
	case errors.Is(err, job.ErrNotFound) && upTo < atLeast:
		// Deleted, or this leader is not the one that stored it.
		return job.Entry{}, fmt.Errorf("job %s: the registry as known here (revision %d) is older than the slot's (%d)", name, upTo, atLeast)
	case err != nil:
		return job.Entry{}, err
	}
	return entry, nil
}
