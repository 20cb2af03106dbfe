package replica

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// maxDropped bounds the dropped jobs that ownJobs remembers: at least the newest maxDropped, and at
// most twice as many. A program may add and drop jobs with new names for as long as it runs.
const maxDropped = 10_000

// maxReplaced bounds the definitions that one added job may replace.
const maxReplaced = 50

// ownJobs are the jobs of this process, and what is known of them in the registry. It is safe for
// concurrent use.
type ownJobs struct {
	added chan struct{} // has an element after a job was added

	mu      sync.Mutex
	serial  int
	byName  map[string]ownJob
	begun   bool                   // Run has begun to apply the jobs
	applied chan struct{}          // closed when a job is applied; nil: no goroutine waits
	dropped [2]map[string][]string // hashes of the definitions that Drop has removed: the newer jobs, and the older ones
}

// ownJob is a job of this process.
type ownJob struct {
	job.Job

	hash   string // of Job
	serial int    // distinguishes the job from others of its name that this process has had
	added  bool   // by Add

	// replaces are the hashes of the other definitions of the job that this process had before. If the
	// registry has one of them, the job is an edit of it.
	replaces []string

	// stored is the hash of the newest definition that the registry is known to have, and revision its
	// revision. Empty: the job was not applied to the registry yet.
	stored   string
	revision uint64
}

func newOwnJobs(jobs []job.Job) *ownJobs {
	l := &ownJobs{added: make(chan struct{}, 1), dropped: [2]map[string][]string{{}, {}}}
	l.replace(jobs)
	return l
}

// hashOf returns the hash of a job that was validated. Its JSON is that of the registry.
func hashOf(j job.Job) string {
	hash, _ := j.WithDefaults().Hash()
	return hash
}

// replace replaces the jobs. It returns the new ones, and the earlier ones for restore.
func (l *ownJobs) replace(jobs []job.Job) (now []ownJob, before map[string]ownJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.byName = l.byName, make(map[string]ownJob, len(jobs))
	for _, j := range jobs {
		own, hash := before[j.Name], hashOf(j)
		if own.hash != hash {
			l.serial++
			own = ownJob{Job: j, hash: hash, serial: l.serial}
		}
		l.byName[j.Name] = own
		now = append(now, own)
	}
	return now, before
}

func (l *ownJobs) restore(before map[string]ownJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byName = before
}

func (l *ownJobs) add(j job.Job) {
	l.mu.Lock()
	l.serial++
	own := ownJob{Job: j, hash: hashOf(j), serial: l.serial, added: true}
	for _, dropped := range l.dropped {
		own.replaces = append(own.replaces, dropped[j.Name]...)
		delete(dropped, j.Name)
	}
	own.replaces = slices.DeleteFunc(own.replaces, func(h string) bool { return h == own.hash })
	l.byName[j.Name] = own
	l.mu.Unlock()
	core.TrySend(l.added, struct{}{})
}

// drop removes a job. Unless Run has begun to apply the jobs, the registry cannot have it from this
// process, and a job of that name that is added later is no edit of it.
func (l *ownJobs) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, ok := l.byName[name]
	delete(l.byName, name)
	if !ok || !l.begun {
		return
	}
	if len(l.dropped[0]) == maxDropped {
		l.dropped = [2]map[string][]string{{}, l.dropped[0]}
	}
	l.dropped[0][name] = codec.Last(append(own.replaces, own.hash), maxReplaced)
}

// waits reports whether Add has added the job, and it was not applied to the registry yet.
func (j ownJob) waits() bool { return j.added && j.stored == "" }

// list returns the wanted jobs, which the caller applies to the registry.
func (l *ownJobs) list(wanted func(ownJob) bool) (jobs []ownJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = true
	for _, own := range l.byName {
		if wanted(own) {
			jobs = append(jobs, own)
		}
	}
	slices.SortFunc(jobs, func(a, b ownJob) int { return strings.Compare(a.Name, b.Name) })
	return jobs
}

// noteApplied notes that ours was applied, unless it was dropped meanwhile. stored is the definition
// that the registry has since then, and revision its revision.
func (l *ownJobs) noteApplied(ours ownJob, stored job.Job, revision uint64) {
	hash := hashOf(stored)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[ours.Name].serial != ours.serial {
		return
	}
	ours.stored, ours.revision, ours.replaces = hash, revision, nil
	l.byName[ours.Name] = ours
	if l.applied != nil {
		close(l.applied)
		l.applied = nil
	}
}

// missing returns the first of the names whose job was not applied yet, and a channel that is
// closed when a job is applied. If there is none, it returns "".
func (l *ownJobs) missing(names []string) (name string, applied <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		if l.byName[n].stored == "" {
			if l.applied == nil {
				l.applied = make(chan struct{})
			}
			return n, l.applied
		}
	}
	return "", nil
}

// noteReplaced notes that the registry has the definition e. It returns true if e is a later
// definition of one of these jobs with another content. If several entries in a row have the same
// content, only the first is reported.
func (l *ownJobs) noteReplaced(e plans.Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.byName[e.Job.Name]
	if own.stored == "" || e.Revision <= own.revision {
		return false
	}
	reported := own.stored
	own.stored, own.revision = hashOf(e.Job), e.Revision
	l.byName[e.Job.Name] = own
	return own.stored != own.hash && own.stored != reported
}

// isRemoved reports whether the event says that one of these jobs was removed after it was applied.
func (l *ownJobs) isRemoved(e plans.RegistryEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.byName[e.Name]
	return e.Deleted && own.stored != "" && e.Revision > own.revision
}

// watchedRegistry is the registry as the producer watches it. Its events also feed the view: a
// second watch of a million jobs would be as large as the first.
type watchedRegistry struct{ r *Replica }

// Watch is called again when the producer starts over.
func (w watchedRegistry) Watch(ctx context.Context, fn func(plans.RegistryEvent)) error {
	w.r.view.Restart()
	return w.r.cfg.Store.Jobs().Watch(ctx, func(e plans.RegistryEvent) {
		w.r.noteRegistry(e)
		fn(e)
	})
}

// noteRegistry handles an event of the registry's watch.
func (r *Replica) noteRegistry(e plans.RegistryEvent) {
	r.view.Apply(e)
	switch {
	case r.own.isRemoved(e):
		r.log.Info("job removed from the registry: it has no slots until a node that defines it starts, or gets SIGHUP", "job", e.Name)
	case !e.Ready && !e.Deleted && e.Err == nil:
		r.logReplaced(e.Entry)
	}
}

// logReplaced logs if another writer's definition has replaced the one of this replica. It compares
// the writers first, because the watch may report a write of this replica before the write is
// answered.
func (r *Replica) logReplaced(e plans.Entry) {
	switch {
	case e.Node == r.identity, !r.own.noteReplaced(e):
	case e.Owner == plans.OwnerOperator:
		r.log.Info("job changed by an operator: the edit takes precedence over files and code", "job", e.Job.Name, "by", e.Node,
			"release", "cronce job release "+e.Job.Name)
	default:
		r.log.Warn("two nodes define this job differently: the definition of the node that started last counts", "job", e.Job.Name,
			"node", r.identity, "stored_by", e.Node)
	}
}
