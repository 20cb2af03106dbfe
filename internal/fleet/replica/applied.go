package replica

import (
	"context"
	"slices"
	"sync"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// appliedJobs are the jobs that this replica has applied to the registry. Later writes of the registry
// are compared with them. Its zero value is empty. It is safe for concurrent use.
type appliedJobs struct {
	mu     sync.Mutex
	byName map[string]appliedJob
	added  chan struct{} // closed when a job is applied; nil: no goroutine waits
	runs   []*applyRun   // in flight
}

// applyRun are the jobs that were dropped since some jobs were about to be applied. The answer to their
// writes may come after that.
type applyRun struct{ dropped map[string]bool }

// begin begins a run. Call it before you take the list of jobs to apply, and end after the last put.
func (l *appliedJobs) begin() *applyRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	run := &applyRun{dropped: map[string]bool{}}
	l.runs = append(l.runs, run)
	return run
}

func (l *appliedJobs) end(run *applyRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = slices.DeleteFunc(l.runs, func(r *applyRun) bool { return r == run })
}

type appliedJob struct {
	ours     string // hash of this replica's definition
	stored   string // hash of the registry's newest known definition
	revision uint64 // of that definition
}

// put records that the run has applied ours, unless that job was dropped meanwhile. stored is the
// definition that the registry has since then, and revision its revision.
func (l *appliedJobs) put(run *applyRun, ours, stored job.Job, revision uint64) {
	a := appliedJob{revision: revision}
	var err1, err2 error
	a.ours, err1 = ours.Hash()
	a.stored, err2 = stored.Hash()
	if err1 != nil || err2 != nil {
		return // such a job is never applied
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if run.dropped[ours.Name] {
		return
	}
	if l.byName == nil {
		l.byName = map[string]appliedJob{}
	}
	l.byName[ours.Name] = a
	if l.added != nil {
		close(l.added)
		l.added = nil
	}
}

// missing returns the first of the names whose job was not applied yet, and a channel that is
// closed when a job is applied. If there is none, it returns "".
func (l *appliedJobs) missing(names []string) (name string, added <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		if _, applied := l.byName[n]; !applied {
			if l.added == nil {
				l.added = make(chan struct{})
			}
			return n, l.added
		}
	}
	return "", nil
}

func (l *appliedJobs) drop(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		delete(l.byName, name)
		for _, run := range l.runs {
			run.dropped[name] = true
		}
	}
}

// noteReplaced notes that the registry has the definition e. It returns true if e is a later
// definition of one of these jobs with another content. If several entries in a row have the same
// content, only the first is reported.
func (l *appliedJobs) noteReplaced(e plans.Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.byName[e.Job.Name]
	if !ok || e.Revision <= a.revision {
		return false
	}
	hash, err := e.Job.Hash()
	if err != nil {
		return false
	}
	reported := a.stored
	a.stored, a.revision = hash, e.Revision
	l.byName[e.Job.Name] = a
	return hash != a.ours && hash != reported
}

// isRemoved reports whether the event says that one of these jobs was removed after it was applied.
func (l *appliedJobs) isRemoved(e plans.RegistryEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.byName[e.Name]
	return e.Deleted && ok && e.Revision > a.revision
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
	case r.applied.isRemoved(e):
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
	case e.Node == r.identity, !r.applied.noteReplaced(e):
	case e.Owner == plans.OwnerOperator:
		r.log.Info("job changed by an operator: the edit takes precedence over files and code", "job", e.Job.Name, "by", e.Node,
			"release", "cronce job release "+e.Job.Name)
	default:
		r.log.Warn("two nodes define this job differently: the definition of the node that started last counts", "job", e.Job.Name,
			"node", r.identity, "stored_by", e.Node)
	}
}
