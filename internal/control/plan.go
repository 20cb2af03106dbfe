package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// plan is an Apply before its first write.
type plan struct {
	*Control
	now   time.Time
	nodes Workers
	edits []edit
}

type edit struct {
	Applied
	revision uint64 // of the entry that the edit replaces
}

func (c *Control) planApply(ctx context.Context, jobs []job.Job, o ApplyOptions) (*plan, error) {
	if err := validate(jobs); err != nil {
		return nil, err
	}
	p := &plan{Control: c}
	all, err := c.checkCycle(ctx, jobs)
	if err != nil {
		return nil, err
	}
	if p.now, err = c.cfg.Now(ctx); err != nil {
		return nil, err
	}
	if p.nodes, err = c.Workers(ctx, p.now); err != nil {
		return nil, err
	}
	wanted := make([]string, len(jobs))
	for i, j := range jobs {
		wanted[i] = j.Name
	}
	if o.Prune {
		extra, err := c.prunable(ctx, jobs)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, extra...)
	}
	p.edits = make([]edit, len(wanted))
	err = c.each(ctx, len(wanted), func(ctx context.Context, i int) error {
		var as *job.Job
		if i < len(jobs) {
			as = &jobs[i]
		}
		return p.look(ctx, &p.edits[i], wanted[i], as)
	})
	if err != nil {
		return nil, err
	}
	there := names(all)
	for i, j := range jobs {
		for _, name := range j.After {
			if !there[name] {
				p.edits[i].Missing = append(p.edits[i].Missing, name)
			}
		}
	}
	// prune sets no action for a job that must not be removed. The list was a hint.
	p.edits = slices.DeleteFunc(p.edits, func(e edit) bool { return e.Action == "" })
	return p, p.unseen(o.Seen)
}

// validate returns all that is wrong with the jobs.
func validate(jobs []job.Job) error {
	var errs []error
	seen := map[string]bool{}
	for _, j := range jobs {
		errs = append(errs, j.Validate())
		if seen[j.Name] {
			errs = append(errs, fmt.Errorf("%w jobs: two have the name %q", job.ErrInvalid, j.Name))
		}
		seen[j.Name] = true
	}
	return errors.Join(errs...)
}

// checkCycle returns the jobs together with those of the registry, and an error if some of
// them would wait for each other in a cycle. It reads the registry only if one of the jobs
// comes after another.
func (c *Control) checkCycle(ctx context.Context, jobs []job.Job) (all []job.Job, err error) {
	if !slices.ContainsFunc(jobs, func(j job.Job) bool { return len(j.After) > 0 }) {
		return jobs, nil
	}
	entries, err := c.cfg.Jobs.List(ctx)
	c.cfg.Alive()
	if err != nil && !core.IsUnreadable(err) {
		return nil, err
	}
	all = slices.Clone(jobs)
	ours := names(jobs)
	for _, e := range entries {
		if !ours[e.Job.Name] {
			all = append(all, e.Job)
		}
	}
	return all, core.CheckCycle(all)
}

// isPrunable reports whether a prune may remove the job.
func isPrunable(e core.Entry) bool { return e.Owner == core.OwnerOperator && e.Applied }

// prunable returns the names of the jobs that a prune may remove and that are not in keep.
// They come from a list, which may be old: look reads each again.
func (c *Control) prunable(ctx context.Context, keep []job.Job) ([]string, error) {
	entries, err := c.cfg.Jobs.List(ctx)
	c.cfg.Alive()
	if err != nil && !core.IsUnreadable(err) {
		return nil, err
	}
	kept := names(keep)
	var extra []string
	for _, e := range entries {
		if isPrunable(e) && !kept[e.Job.Name] {
			extra = append(extra, e.Job.Name)
		}
	}
	return extra, nil
}

// names returns the set of the jobs' names.
func names(jobs []job.Job) map[string]bool {
	set := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		set[j.Name] = true
	}
	return set
}

// look reads a job's entry at the registry's leader and sets the edit's action. wanted is nil
// for a job to be pruned.
func (p *plan) look(ctx context.Context, e *edit, name string, wanted *job.Job) error {
	entry, revision, err := p.cfg.Jobs.Read(ctx, name)
	p.cfg.Alive()
	old := &entry
	switch {
	case errors.Is(err, job.ErrNotFound):
		old = nil
	case errors.Is(err, job.ErrVersion):
		return fmt.Errorf("written by a newer version: %w", err)
	case errors.Is(err, job.ErrInvalid):
		old, e.Broken = nil, err
	case err != nil:
		return err
	}
	e.Job, e.Revision, e.revision = name, revision, revision
	if old != nil {
		e.Owner, e.Node, e.At, e.Paused = old.Owner, old.Node, old.Time, old.Paused
	}
	if wanted == nil {
		return p.prune(e, old)
	}
	return p.upsert(e, old, *wanted)
}

func (p *plan) upsert(e *edit, old *core.Entry, wanted job.Job) error {
	next, change, err := core.Upsert(old, wanted, core.OwnerOperator, p.cfg.Operator, true)
	if err != nil {
		return err
	}
	if e.Broken != nil {
		next.Applied = false // it is not known who created the job, so a prune must not remove it
	}
	e.Definition, e.Handlers = next, len(p.nodes.Of(next.Job))
	after := next.Job.Plan()
	switch {
	case change == core.Unchanged:
		e.Action = Keep
		return nil
	case old == nil:
		e.Action = Create
		if e.Broken != nil {
			e.Action = Update
		}
		e.Appear, _, err = slots(e.Job, nil, &after, p.now)
		return err
	}
	e.Action = Update
	if e.Fields, err = fields(old.Job, next.Job); err != nil {
		return err
	}
	before := old.Job.Plan()
	e.Appear, e.Disappear, err = slots(e.Job, &before, &after, p.now)
	return err
}

func (p *plan) prune(e *edit, old *core.Entry) error {
	if old == nil || !isPrunable(*old) {
		return nil
	}
	e.Action = Delete
	before := old.Job.Plan()
	var err error
	_, e.Disappear, err = slots(e.Job, &before, nil, p.now)
	return err
}

// unseen returns a conflict for each edit that would change a job written after revision
// seen.
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
