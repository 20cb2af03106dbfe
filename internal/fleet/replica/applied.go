package replica

import (
	"context"
	"sync"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// own is what this replica last applied to the registry, or found to be applied. Later
// writes are compared with it. Its zero value is empty. It is safe for concurrent use.
type own struct {
	mu      sync.Mutex
	jobs    map[string]applied
	changed chan struct{} // closed when a job is applied; nil: no goroutine waits
}

// applied has the hash of a job here, the hash of the registry's definition when last
// reported, and the revision of that.
type applied struct {
	mine, theirs string
	revision     uint64
}

// put records that mine was applied, and that the registry has the definition stored after that.
func (o *own) put(mine, stored job.Job, revision uint64) {
	a := applied{revision: revision}
	var err1, err2 error
	a.mine, err1 = mine.Hash()
	a.theirs, err2 = stored.Hash()
	if err1 != nil || err2 != nil {
		return // such a job is never applied
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.jobs == nil {
		o.jobs = map[string]applied{}
	}
	o.jobs[mine.Name] = a
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// missing returns the first of the names whose job was not applied yet, and a channel that is
// closed when a job is applied. If there is none, it returns "".
func (o *own) missing(names []string) (name string, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range names {
		if _, here := o.jobs[n]; !here {
			if o.changed == nil {
				o.changed = make(chan struct{})
			}
			return n, o.changed
		}
	}
	return "", nil
}

// drop forgets a job that is not ours any more.
func (o *own) drop(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.jobs, name)
}

// overruled reports whether e is a later definition of one of our jobs by another writer,
// with other content. Each content is reported once.
func (o *own) overruled(e plans.Entry) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.jobs[e.Job.Name]
	if !ok || e.Revision <= a.revision {
		return false
	}
	hash, err := e.Job.Hash()
	if err != nil {
		return false
	}
	reported := a.theirs
	a.theirs, a.revision = hash, e.Revision
	o.jobs[e.Job.Name] = a
	return hash != a.mine && hash != reported
}

// removed reports whether one of our jobs was removed from the registry after it was
// applied.
func (o *own) removed(e plans.RegistryEvent) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.jobs[e.Name]
	return ok && e.Revision > a.revision
}

// followed is the registry as the producer watches it. It also feeds the view. A second
// watch of a million jobs would be as large as the first.
type followed struct{ r *Replica }

func (f followed) Watch(ctx context.Context, fn func(plans.RegistryEvent)) error {
	return f.r.cfg.Store.Jobs().Watch(ctx, func(e plans.RegistryEvent) {
		f.r.watched(e)
		fn(e)
	})
}

// watched handles an event of the registry's watch.
func (r *Replica) watched(e plans.RegistryEvent) {
	r.view.Apply(e)
	switch {
	case e.Ready, e.Err != nil:
	case !e.Deleted:
		r.compare(e.Entry)
	case r.own.removed(e):
		r.log.Info("job removed from the registry: it has no slots until a node that defines it starts, or gets SIGHUP", "job", e.Name)
	}
}

// compare logs that a definition has replaced the one of this replica.
func (r *Replica) compare(e plans.Entry) {
	switch {
	case !r.own.overruled(e):
	case e.Owner == plans.OwnerOperator:
		r.log.Info("job changed by an operator: the edit takes precedence over files and code", "job", e.Job.Name, "by", e.Node,
			"release", "cronce job release "+e.Job.Name)
	default:
		r.log.Warn("two nodes define this job differently: the definition of the node that started last counts", "job", e.Job.Name,
			"node", r.identity, "stored_by", e.Node)
	}
}
