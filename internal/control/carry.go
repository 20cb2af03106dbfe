package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cronce-io/cronce/job"
)

// unseen refuses the plan when it would change what was written after seen.
func (p *plan) unseen(seen *uint64) error {
	if seen == nil {
		return nil
	}
	var errs []error
	for _, e := range p.edits {
		if e.Action == Keep || e.revision <= *seen {
			continue
		}
		errs = append(errs, &ConflictError{
			Job: e.Job, Removed: e.At.IsZero() && e.Broken == nil, By: e.Node, Owner: e.Owner, At: e.At, Revision: e.revision,
		})
	}
	return errors.Join(errs...)
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
