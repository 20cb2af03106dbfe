// Package registry caches the job definitions that a process needs.
//
// The registry may hold a million jobs, and a process has handlers for a few of them. The
// View keeps the definitions of those jobs, of the jobs that others need (jobs that run
// after other jobs, that messages start, or that ask for alerts), and of the jobs that were
// looked up lately. It reads all others from the leader of the registry.
//
// A watch feeds the View, so a kept definition may be stale. Two answers must not come from
// stale data, because a slot would be cancelled for them. "Deleted" comes from the leader of
// the registry. A definition older than the message that needs it is not returned.
package registry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Reader reads one entry at the leader of the registry. kv.Jobs implements it.
type Reader interface {
	Read(ctx context.Context, name string) (plans.Entry, uint64, error)
}

const (
	// maxLookedUp bounds the definitions that are kept only because they were looked up.
	maxLookedUp = 1000

	// readTime is how long the View uses a definition that was read from the leader, if the
	// watch has not delivered the job since. The time is short because the read may be stale: a
	// deposed leader may answer with an entry whose successor the watch has already delivered.
	readTime = 10 * time.Second
)

// View is the cache. It is safe for concurrent use.
type View struct {
	reader Reader
	wants  func(name string) bool

	mu       sync.Mutex
	kept     map[string]*kept
	lookedUp []string            // names that lookups have added to kept, oldest first
	after    map[string][]string // by job, the jobs that run after it
	alerts   int                 // number of jobs that ask for alerts
	late     map[string]bool     // jobs that ask for alerts about late slots
	on       map[string]bool     // jobs that messages start, or did by a past plan
	upTo     uint64              // the View has all changes up to this revision
	ready    chan struct{}
	done     bool // ready is closed
	watch    int  // serial number of the current watch, from 1
}

// kept is what the View knows of one job whose events it applies.
type kept struct {
	entry *plans.Entry // shared, never modified
	err   error        // the stored definition cannot be decoded

	// watch is the watch that delivered entry or err. If it is 0, read is when the entry was read,
	// or zero if nothing is known.
	watch int
	read  time.Time
}

// known returns the entry that the watch delivered, or the zero Entry.
func (k *kept) known() plans.Entry {
	if k == nil || k.watch == 0 || k.err != nil {
		return plans.Entry{}
	}
	return *k.entry
}

// NewView returns an empty cache; feed it with Apply. wants reports which definitions are
// always kept; its answers may change.
func NewView(r Reader, wants func(name string) bool) *View {
	return &View{
		reader: r, wants: wants, kept: map[string]*kept{}, after: map[string][]string{}, on: map[string]bool{}, late: map[string]bool{},
		ready: make(chan struct{}), watch: 1,
	}
}

// Keep makes the View keep the definition of the job from the next event of the watch on.
func (v *View) Keep(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept[name] == nil {
		v.kept[name] = &kept{}
	}
}

// Restart begins a new watch, which does not deliver earlier deletions. The View is not
// ready until the watch has delivered all that is stored. It keeps what it has, because
// running handlers may still ask which jobs run after theirs.
func (v *View) Restart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watch++
	v.upTo = 0 // the registry may be a new one, whose revisions start again
	if v.done {
		v.done, v.ready = false, make(chan struct{})
	}
}

// Apply applies one event of the watch.
func (v *View) Apply(e plans.RegistryEvent) {
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
		*k = kept{entry: &entry, err: e.Err, watch: v.watch}
	}
	v.relate(k.known())
}

// listed handles the end of a watch's initial listing: entries that only an earlier watch delivered
// were deleted since. v.mu is held.
func (v *View) listed() {
	for _, k := range v.kept {
		if k.watch > 0 && k.watch != v.watch {
			v.unrelate(k.known())
			*k = kept{}
		}
	}
	if !v.done {
		v.done = true
		close(v.ready)
	}
}

// alerting, messaged and related report whether the View must keep the entry for Alerting, Late,
// Messaged or After, even if this process has no handler for the job.
func alerting(e plans.Entry) bool { return exchange.WantsAlerts(e.Job) }

func messaged(e plans.Entry) bool {
	return !e.Job.On.IsZero() || slices.ContainsFunc(e.Past, func(p plans.PastPlan) bool { return !p.Plan.On.IsZero() })
}

func related(e plans.Entry) bool { return len(e.Job.After) > 0 || alerting(e) || messaged(e) }

// relate adds the entry, which may be the zero one, to the indexes. v.mu is held.
func (v *View) relate(e plans.Entry) {
	if alerting(e) {
		v.alerts++
	}
	if e.Job.OnLate != nil {
		v.late[e.Job.Name] = true
	}
	if messaged(e) {
		v.on[e.Job.Name] = true
	}
	for _, name := range e.Job.After {
		v.after[name] = append(v.after[name], e.Job.Name)
	}
}

// unrelate removes the entry from the indexes. v.mu is held.
func (v *View) unrelate(e plans.Entry) {
	if alerting(e) {
		v.alerts--
	}
	delete(v.on, e.Job.Name)
	delete(v.late, e.Job.Name)
	for _, name := range e.Job.After {
		v.after[name] = slices.DeleteFunc(v.after[name], func(n string) bool { return n == e.Job.Name })
		if len(v.after[name]) == 0 {
			delete(v.after, name)
		}
	}
}

// Alerting reports whether any job asks for alerts.
func (v *View) Alerting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alerts > 0
}

// Late returns the definitions of the jobs that ask for alerts about late slots. It does not
// ask the leader.
func (v *View) Late() []plans.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.entries(maps.Keys(v.late))
}

// Messaged returns the definitions of the jobs that messages start, or did by a past plan.
// It leaves out definitions that cannot be decoded, so a missing job is not a deleted one. It
// does not ask the leader.
func (v *View) Messaged() []plans.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.entries(maps.Keys(v.on))
}

// After returns the kept definitions of the jobs that run after the named one. It does not
// ask the leader.
func (v *View) After(name string) []plans.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.entries(slices.Values(v.after[name]))
}

// entries returns the definitions of jobs in an index. v.mu is held.
func (v *View) entries(names iter.Seq[string]) (entries []plans.Entry) {
	for name := range names {
		entries = append(entries, v.kept[name].known())
	}
	return entries
}

// Ready returns a channel that is closed when the watch has delivered all that was stored. Restart
// replaces a channel that is closed.
func (v *View) Ready() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ready
}

// Entry returns the definition as the watch delivered it, or false if none is kept.
func (v *View) Entry(name string) (plans.Entry, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.kept[name].known()
	return e, e.Revision > 0
}

// Lookup returns the definition of the job as of registry revision atLeast or later. atLeast
// is the revision of an entry of the job. job.ErrNotFound means that the leader has no
// entry. Other errors mean that the answer is not known now, or that the stored definition
// is broken.
func (v *View) Lookup(ctx context.Context, name string, atLeast uint64) (plans.Entry, error) {
	k, upTo := v.keepName(name)
	if k.err != nil {
		return plans.Entry{}, k.err
	}
	if known := k.asOf(upTo, atLeast); known != nil {
		return *known, nil
	}
	began := time.Now()
	entry, _, err := v.reader.Read(ctx, name)
	switch {
	case errors.Is(err, job.ErrNotFound) && upTo < atLeast:
		// The job was deleted, or the answer came from a deposed leader.
		return plans.Entry{}, fmt.Errorf("job %s: registry revision %d on this node is older than revision %d of the slot", name, upTo, atLeast)
	case err != nil:
		return plans.Entry{}, err
	case max(upTo, entry.Revision) < atLeast:
		return plans.Entry{}, fmt.Errorf("job %s: its definition is of registry revision %d, older than revision %d of the slot", name, entry.Revision, atLeast)
	}
	v.noteRead(name, entry, began)
	return entry, nil
}

// Known returns what Lookup would return without asking the leader, and nil if Lookup would
// ask it or fail. The result must not be modified.
func (v *View) Known(name string, atLeast uint64) *plans.Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.kept[name]; k != nil {
		return k.asOf(v.upTo, atLeast)
	}
	return nil
}

// asOf returns the entry as of revision atLeast or later, or nil if that is not known. All
// changes up to revision upTo have been applied.
func (k *kept) asOf(upTo, atLeast uint64) *plans.Entry {
	switch {
	case k.watch > 0 && k.err == nil && max(upTo, k.entry.Revision) >= atLeast:
		return k.entry
	case !k.read.IsZero() && time.Since(k.read) < readTime && k.entry.Revision >= atLeast:
		return k.entry
	}
	return nil
}

// keepName returns what is known of the job, and keeps its name from now on, so that no event of
// the watch is missed while the entry is read.
func (v *View) keepName(name string) (k kept, upTo uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept[name] == nil {
		if len(v.lookedUp) == maxLookedUp {
			if first := v.lookedUp[0]; !v.wants(first) && !related(v.kept[first].known()) {
				delete(v.kept, first)
			}
			v.lookedUp = v.lookedUp[1:]
		}
		v.kept[name] = &kept{}
		v.lookedUp = append(v.lookedUp, name)
	}
	return *v.kept[name], v.upTo
}

// noteRead keeps an entry that was read, unless the watch has delivered one meanwhile.
func (v *View) noteRead(name string, entry plans.Entry, began time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.kept[name]; k != nil && k.watch == 0 {
		k.entry, k.read = &entry, began
	}
}
