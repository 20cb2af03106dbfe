package replica

import (
	"context"
	"sync"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// own is what this replica last brought to the registry, or found there to be so:
// it is held against what others write later. Its zero value knows nothing. It is
// safe for concurrent use.
type own struct {
	mu   sync.Mutex
	jobs map[string]applied
}

// applied is a job's content here, what the registry had of it when that was last
// told of, and the revision of that.
type applied struct {
	mine, theirs string
	revision     uint64
}

// put notes that mine was applied, and what stood in the registry after that.
func (o *own) put(mine, standing job.Job, revision uint64) {
	a := applied{revision: revision}
	var err1, err2 error
	a.mine, err1 = mine.Hash()
	a.theirs, err2 = standing.Hash()
	if err1 != nil || err2 != nil {
		return // it could not have been applied
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.jobs == nil {
		o.jobs = map[string]applied{}
	}
	o.jobs[mine.Name] = a
}

// overruled reports whether e is somebody's later definition of a job of ours, and
// another than ours. Each content is reported once, whatever else is written.
func (o *own) overruled(e core.Entry) bool {
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
	told := a.theirs
	a.theirs, a.revision = hash, e.Revision
	o.jobs[e.Job.Name] = a
	return hash != a.mine && hash != told
}

// removed reports whether a job of ours was taken out of the registry after it was
// applied.
func (o *own) removed(e core.RegistryEvent) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.jobs[e.Name]
	return ok && e.Revision > a.revision
}

// followed is the registry as the producer watches it: what it is told, the view is
// told too. A second watch of a million jobs would be as large as the first.
type followed struct{ r *Replica }

func (f followed) Watch(ctx context.Context, fn func(core.RegistryEvent)) error {
	return f.r.cfg.Store.Jobs().Watch(ctx, func(e core.RegistryEvent) {
		f.r.watched(e)
		fn(e)
	})
}

// watched takes in what the registry's watch tells.
func (r *Replica) watched(e core.RegistryEvent) {
	r.view.Apply(e)
	switch {
	case e.Ready, e.Err != nil:
	case !e.Deleted:
		r.compare(e.Entry)
	case r.own.removed(e):
		r.log.Info("somebody removed this job: it has no slots until a node that has it starts, or is sent SIGHUP", "job", e.Name)
	}
}

// compare reports when a definition takes the place of this replica's.
func (r *Replica) compare(e core.Entry) {
	switch {
	case !r.own.overruled(e):
	case e.Owner == core.OwnerOperator:
		r.log.Info("an operator changed this job: that holds over files and code", "job", e.Job.Name, "by", e.Node,
			"end it", "cronce job release "+e.Job.Name)
	default:
		r.log.Warn("two nodes disagree about this job: the one that started last holds", "job", e.Job.Name,
			"this node", r.identity, "holds", e.Node)
	}
}
