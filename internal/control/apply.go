package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// ApplyOptions change what Apply does.
type ApplyOptions struct {
	// Prune also removes the jobs that operators applied and still hold, and that are not
	// among these. It never removes a job that a file or code brought, or that was
	// released.
	Prune bool

	// DryRun writes nothing.
	DryRun bool

	// Seen is the registry's revision that the caller has seen. If one of the jobs to be
	// changed was written after it, nothing is changed. So a file of yesterday does not
	// overwrite an edit of today. Nil: any revision.
	Seen *uint64
}

// Action is what Apply does to a job.
type Action string

const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Keep   Action = "keep" // unchanged: nothing is written
)

// Applied is the result for one job.
type Applied struct {
	Job    string
	Action Action

	// Revision is the job's revision after the operation.
	Revision uint64

	// Owner, Node and At describe the job's last write before the operation. At is zero if
	// there was no job, or if its definition could not be read (see Broken).
	Owner, Node string
	At          time.Time

	// Broken is why the stored definition could not be read. Apply replaces it. Its past
	// plans are lost.
	Broken error

	// Fields are the settings that change. Set with Update only.
	Fields []Field

	// Appear and Disappear are the next slots that the change adds or removes. If the job
	// is Paused, this takes effect when it is resumed.
	Appear, Disappear []time.Time
	Paused            bool

	// Definition is the stored definition after the operation. Not set with Delete.
	Definition core.Definition

	// Missing are the jobs that this one comes after and that do not exist. It cannot start
	// before they do.
	Missing []string

	// Handlers is the number of live nodes that would run the job.
	Handlers int

	// Err is why this job was not changed. If it wraps job.ErrUnknown, the job may have been
	// changed.
	Err error
}

// Apply stores the jobs in the registry, held by the operator. It returns a result for each
// job in the given order, then one for each job that it removed. It may bring back an older
// definition, to roll back.
//
// Nothing is written if one of the jobs is invalid, or was written after Seen. If another
// writer changes a job at the same time, Apply leaves that job and goes on with the others.
// Any other failure ends it. The returned error is the first one in the results.
func (c *Control) Apply(ctx context.Context, jobs []job.Job, o ApplyOptions) ([]Applied, error) {
	p, err := c.planApply(ctx, jobs, o)
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		p.carryOut(ctx)
	}
	var report []Applied
	for _, e := range p.edits {
		report = append(report, e.Applied)
		if err == nil {
			err = e.Err
		}
	}
	return report, err
}

// ErrNotTried is the error of jobs that were not changed because another one failed.
var ErrNotTried = errors.New("not tried, since another job could not be written")

// carryOut writes the creations and updates, and then the deletions. If a write fails, it
// deletes nothing: a job may have been renamed, and must not be missing under both names.
func (p *plan) carryOut(ctx context.Context) {
	if p.pass(ctx, Create, Update) {
		p.pass(ctx, Delete)
		return
	}
	for i, e := range p.edits {
		if e.Action == Delete {
			p.edits[i].Err = fmt.Errorf("job %s: %w", e.Job, ErrNotTried)
		}
	}
}

// pass carries out the edits of these actions and reports whether all succeeded. After a
// failure that is no conflict it begins no further edit, but waits for those that run.
func (p *plan) pass(ctx context.Context, kinds ...Action) bool {
	var conflicts, failed atomic.Bool
	_ = p.each(ctx, len(p.edits), func(ctx context.Context, i int) error {
		e := &p.edits[i]
		switch {
		case !slices.Contains(kinds, e.Action):
			return nil
		case failed.Load() || ctx.Err() != nil:
			e.Err = fmt.Errorf("job %s: %w", e.Job, ErrNotTried)
			return nil
		}
		e.Err = p.write(ctx, e)
		if errors.Is(e.Err, job.ErrConflict) {
			conflicts.Store(true)
		} else if e.Err != nil {
			failed.Store(true)
		}
		return nil
	})
	return !conflicts.Load() && !failed.Load() && ctx.Err() == nil
}

// write writes one job. It is no conflict if another writer has stored the same job.
func (p *plan) write(ctx context.Context, e *edit) error {
	if e.Action == Delete {
		return p.conflict(ctx, e.Job, p.cfg.Jobs.Delete(ctx, e.Job, e.revision))
	}
	e.Definition.Nonce = rand.Text()
	won, err := p.cfg.Jobs.Write(ctx, e.Definition, e.revision)
	if err == nil {
		e.Revision = won
	}
	err = p.conflict(ctx, e.Job, err)
	if !errors.Is(err, job.ErrConflict) {
		return err
	}
	again := edit{}
	if p.look(ctx, &again, e.Job, &e.Definition.Job) == nil && again.Action == Keep {
		*e = again
		return nil
	}
	return err
}
