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

// ApplyOptions say how jobs are brought in.
type ApplyOptions struct {
	// Prune also removes the jobs that operators brought and hold and that are not
	// among these. Jobs that a file or code brought are never removed by it, nor
	// those that were released.
	Prune bool

	// DryRun writes nothing.
	DryRun bool

	// Seen, when not nil, is the revision up to which the caller has seen the
	// registry: nothing is changed if one of the jobs to be changed was written
	// after it. So what was read yesterday is not written over today's edit.
	Seen *uint64
}

// Action is what is done to a job.
type Action string

const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	Keep   Action = "keep" // it has this content already: nothing is written
)

// Applied is what became of one job.
type Applied struct {
	Job    string
	Action Action

	// Revision is the job's last one: of what was written, unless nothing was.
	Revision uint64

	// Owner, Node and At tell who wrote what stood there before; At is zero when
	// nothing did, or what cannot be read (see Broken).
	Owner, Node string
	At          time.Time

	// Broken is why what stood there could not be read. It is replaced, without
	// its past.
	Broken error

	// Fields are the settings that change, when there were some before.
	Fields []Field

	// Appear and Disappear are the next slots that come or go with the change. Of
	// a paused job they do so when it is resumed.
	Appear, Disappear []time.Time
	Paused            bool

	// Definition is what stands there when all is done. Not set with Delete.
	Definition core.Definition

	// Missing are the jobs that it comes after and that nobody has brought: it cannot
	// start before they are there.
	Missing []string

	// Handlers is how many live nodes would run the job as it then is.
	Handlers int

	// Err says that this job was left as it is, or (job.ErrUnknown) may have been.
	Err error
}

// Apply brings the jobs into the registry as the operator's, and reports what
// became of each, in their order, then of those that it removed. A content that
// was superseded may come back: this is how to roll back.
//
// Nothing is written when one of them is wrong, or was written after Seen. Once
// writing has begun, a job that somebody else writes at the same time is left as
// theirs, and the others go on; any other failure ends it. The error is the first
// of those in the report.
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

// ErrNotTried is of jobs whose turn never came: they are as they were.
var ErrNotTried = errors.New("not tried, after another could not be written")

// carryOut writes what is to be written, and then removes what is to be removed,
// unless something could not be written: a job may have been renamed, and nobody
// is to be without both.
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

// pass carries out the edits of these kinds and reports whether all could be.
// After a failure that is no conflict nothing more is begun; what has been begun
// is let end.
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
		e.Err = p.settle(ctx, e)
		if errors.Is(e.Err, job.ErrConflict) {
			conflicts.Store(true)
		} else if e.Err != nil {
			failed.Store(true)
		}
		return nil
	})
	return !conflicts.Load() && !failed.Load() && ctx.Err() == nil
}

// settle writes one job. Who wants the same and was faster is no conflict.
func (p *plan) settle(ctx context.Context, e *edit) error {
	if e.Action == Delete {
		return p.explain(ctx, e.Job, p.cfg.Jobs.Delete(ctx, e.Job, e.revision))
	}
	e.Definition.Nonce = rand.Text()
	won, err := p.cfg.Jobs.Write(ctx, e.Definition, e.revision)
	if err == nil {
		e.Revision = won
	}
	err = p.explain(ctx, e.Job, err)
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
