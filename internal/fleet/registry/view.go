// Package registry keeps what a process needs to know of the jobs' definitions.
//
// The registry may hold a million jobs, of which a process has handlers for a few:
// the View keeps those, the ones that something follows from (jobs that come after
// others, that messages start, that have somebody told), and of the others those that
// were asked for lately. What it does not keep, the registry's leader is asked for.
//
// What is kept is fed by a watch and is a hint: it may lag. Two answers must not
// come from a lagging copy, since a slot would be cancelled for them: "deleted" is
// asked of the registry's leader, and a definition older than the message it is
// wanted for is not given.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Reader reads one entry at the registry's leader. kv.Jobs satisfies it.
type Reader interface {
	Read(ctx context.Context, name string) (core.Entry, uint64, error)
}

const (
	// maxGuests is how many definitions are kept that this process has no
	// handlers for.
	maxGuests = 1000

	// guestTime is how long what was read, and of which the watch has told nothing
	// since, is taken for the registry's: a leader that was deposed and does not
	// know it may have told of an entry that the watch was told to be replaced.
	guestTime = 10 * time.Second
)

// View is the copy. It is safe for concurrent use.
type View struct {
	reader Reader
	wants  func(name string) bool

	mu     sync.Mutex
	kept   map[string]*kept
	guests []string            // names that are kept without being wanted, oldest first
	after  map[string][]string // the jobs that come after one
	alerts int                 // jobs that have somebody told
	on     map[string]bool     // jobs that messages start, or once did
	upTo   uint64              // the last revision at which nothing was missing
	ready  chan struct{}
	done   bool // ready is closed
	watch  int  // counts them
}

// kept is a name of which the watch's events are taken in.
type kept struct {
	entry *core.Entry // not written to, since others have it
	err   error       // what is stored cannot be read

	// told says that entry or err is the watch's, and by told of them; read is when
	// the entry was otherwise read. Neither: the name is kept, and nothing known of it.
	told bool
	by   int
	read time.Time
}

// known is the entry that the watch told; zero: none.
func (k *kept) known() core.Entry {
	if k == nil || !k.told || k.err != nil || k.entry == nil {
		return core.Entry{}
	}
	return *k.entry
}

// NewView returns an empty copy; feed it with Apply. wants says which jobs'
// definitions are always kept; its answers may change.
func NewView(r Reader, wants func(name string) bool) *View {
	return &View{
		reader: r, wants: wants, kept: map[string]*kept{}, after: map[string][]string{}, on: map[string]bool{}, ready: make(chan struct{}),
	}
}

// Keep has the job's definition kept from the watch's next event of it on.
func (v *View) Keep(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept[name] == nil {
		v.kept[name] = &kept{}
	}
}

// Restart says that a new watch begins, which does not tell what was deleted before
// it. Until it has told all that is stored the View is not ready, and keeps what it
// has: handlers of the time before may still ask what follows.
func (v *View) Restart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch++
	v.upTo = 0 // it may be another registry, whose revisions start over
	if v.done {
		v.done, v.ready = false, make(chan struct{})
	}
}

// Apply takes in one event of the registry's watch.
func (v *View) Apply(e core.RegistryEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Ready || e.Settled {
		v.upTo = max(v.upTo, e.Revision)
	}
	switch {
	case e.Ready:
		v.listed()
		return
	case e.Settled:
		return
	}
	k := v.kept[e.Name]
	if k == nil && (e.Deleted || !v.wants(e.Name) && !related(e.Entry)) {
		return
	}
	if k == nil {
		k = &kept{}
		v.kept[e.Name] = k
	}
	v.unrelate(k.known())
	*k = kept{}
	if !e.Deleted {
		entry := e.Entry
		*k = kept{entry: &entry, err: e.Err, told: true, by: v.watch}
	}
	v.relate(k.known())
}

// listed is told when the watch has told all that is stored: what it did not tell is
// there no more. v.mu is held.
func (v *View) listed() {
	for _, k := range v.kept {
		if k.told && k.by != v.watch {
			v.unrelate(k.known())
			*k = kept{}
		}
	}
	if !v.done {
		v.done = true
		close(v.ready)
	}
}

// Of an entry the View answers questions that name no job, or another one.
func alerting(e core.Entry) bool { return e.Job.OnFailure != nil || e.Job.OnMissed != nil }

func messaged(e core.Entry) bool {
	return !e.Job.On.IsZero() || slices.ContainsFunc(e.Past, func(p core.PastPlan) bool { return !p.Plan.On.IsZero() })
}

func related(e core.Entry) bool { return len(e.Job.After) > 0 || alerting(e) || messaged(e) }

// relate notes what follows from an entry, the zero one included; v.mu is held.
func (v *View) relate(e core.Entry) {
	if alerting(e) {
		v.alerts++
	}
	if messaged(e) {
		v.on[e.Job.Name] = true
	}
	for _, name := range e.Job.After {
		v.after[name] = append(v.after[name], e.Job.Name)
	}
}

// unrelate takes that back.
func (v *View) unrelate(e core.Entry) {
	if alerting(e) {
		v.alerts--
	}
	delete(v.on, e.Job.Name)
	for _, name := range e.Job.After {
		v.after[name] = slices.DeleteFunc(v.after[name], func(n string) bool { return n == e.Job.Name })
		if len(v.after[name]) == 0 {
			delete(v.after, name)
		}
	}
}

// Alerting reports whether any job has somebody told of its slots.
func (v *View) Alerting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alerts > 0
}

// Messaged returns the definitions of the jobs that messages start, or did by a past
// plan. A definition that cannot be read is not among them: that a job is missing does
// not mean that it is deleted. It asks nobody.
func (v *View) Messaged() []core.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	var entries []core.Entry
	for name := range v.on {
		entries = append(entries, v.kept[name].known())
	}
	return entries
}

// After returns the definitions of the jobs that come after the named one, as they
// are known here. It asks nobody.
func (v *View) After(name string) []core.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	var entries []core.Entry
	for _, n := range v.after[name] {
		entries = append(entries, v.kept[n].known())
	}
	return entries
}

// Ready is closed when all that was stored has been seen: once, or since Restart.
func (v *View) Ready() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ready
}

// Entry is the job's definition as the watch told it; false when none is kept.
func (v *View) Entry(name string) (core.Entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.kept[name]; k != nil && k.told && k.err == nil {
		return *k.entry, true
	}
	return core.Entry{}, false
}

// Lookup returns the job's definition as of registry revision atLeast or later,
// which is that of an entry of the job. job.ErrNotFound says that the leader has
// none; other errors, that it cannot be said now, or that the stored definition is
// broken.
func (v *View) Lookup(ctx context.Context, name string, atLeast uint64) (core.Entry, error) {
	k, upTo, guest := v.look(name)
	if k.told && k.err != nil {
		return core.Entry{}, k.err
	}
	if known := k.asOf(upTo, atLeast); known != nil {
		return *known, nil
	}
	began := time.Now()
	entry, _, err := v.reader.Read(ctx, name)
	switch {
	case errors.Is(err, job.ErrNotFound) && upTo < atLeast:
		// Deleted, or this leader is not the one that stored it.
		return core.Entry{}, fmt.Errorf("job %s: the registry as known here (revision %d) is older than the slot's (%d)", name, upTo, atLeast)
	case err != nil:
		return core.Entry{}, err
	}
	v.remember(guest, entry, began)
	return entry, nil
}

// Known is what Lookup would return without asking the leader; nil if it would have
// to, or to return an error. It is not written to.
func (v *View) Known(name string, atLeast uint64) *core.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.kept[name]; k != nil {
		return k.asOf(v.upTo, atLeast)
	}
	return nil
}

// asOf is the entry as of revision atLeast or later, nothing up to upTo being missing;
// nil if it is not known to be.
func (k *kept) asOf(upTo, atLeast uint64) *core.Entry {
	switch {
	case k.told && k.err == nil && max(upTo, k.entry.Revision) >= atLeast:
		return k.entry
	case !k.read.IsZero() && time.Since(k.read) < guestTime && k.entry.Revision >= atLeast:
		return k.entry
	}
	return nil
}

// look is what is known of the job. From here on its name is kept, so that nothing
// the watch tells of it while it is read is missed.
func (v *View) look(name string) (known kept, upTo uint64, at *kept) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at = v.kept[name]
	if at == nil {
		if len(v.guests) == maxGuests {
			if first := v.guests[0]; !related(v.kept[first].known()) {
				delete(v.kept, first)
			}
			v.guests = v.guests[1:]
		}
		at = &kept{}
		v.kept[name] = at
		v.guests = append(v.guests, name)
	}
	return *at, v.upTo, at
}

// remember keeps what was read, unless the watch has told more meanwhile.
func (v *View) remember(at *kept, entry core.Entry, began time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !at.told {
		at.entry, at.read = &entry, began
	}
}
