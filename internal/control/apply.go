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

// plan is what is to be done: all that is known before the first write.
type plan struct {
	*Control
	now   time.Time
	nodes Workers
	edits []edit
}

type edit struct {
	Applied
	revision uint64 // that is expected to stand there
}

func (c *Control) planApply(ctx context.Context, jobs []job.Job, o ApplyOptions) (*plan, error) {
	if err := validate(jobs); err != nil {
		return nil, err
	}
	p := &plan{Control: c}
	all, err := c.circle(ctx, jobs)
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
	// Of those to be pruned some may be somebody else's by now: the list was a hint.
	p.edits = slices.DeleteFunc(p.edits, func(e edit) bool { return e.Action == "" })
	return p, p.unseen(o.Seen)
}

// validate names all that is wrong with the jobs.
func validate(jobs []job.Job) error {
	var errs []error
	seen := map[string]bool{}
	for _, j := range jobs {
		errs = append(errs, j.Validate())
		if seen[j.Name] {
			errs = append(errs, fmt.Errorf("%w jobs: two are called %q", job.ErrInvalid, j.Name))
		}
		seen[j.Name] = true
	}
	return errors.Join(errs...)
}

// circle refuses jobs that would, with those of the registry, wait for each other
// in a circle, and returns all of them. The registry is asked only if one comes after
// another.
func (c *Control) circle(ctx context.Context, jobs []job.Job) (all []job.Job, err error) {
	if !slices.ContainsFunc(jobs, func(j job.Job) bool { return len(j.After) > 0 }) {
		return jobs, nil
	}
	entries, err := c.cfg.Jobs.List(ctx)
	c.cfg.Alive()
	if err != nil && !unreadable(err) {
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

// prunable reports whether a prune may remove the job.
func prunable(e core.Entry) bool { return e.Owner == core.OwnerOperator && e.Applied }

// prunable are the names of the jobs that may be pruned and are not among these, as the
// list has them; each is read again before anything is decided.
func (c *Control) prunable(ctx context.Context, keep []job.Job) ([]string, error) {
	entries, err := c.cfg.Jobs.List(ctx)
	c.cfg.Alive()
	if err != nil && !unreadable(err) {
		return nil, err
	}
	kept := names(keep)
	var extra []string
	for _, e := range entries {
		if prunable(e) && !kept[e.Job.Name] {
			extra = append(extra, e.Job.Name)
		}
	}
	return extra, nil
}

// names is the set of the jobs' names.
func names(jobs []job.Job) map[string]bool {
	set := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		set[j.Name] = true
	}
	return set
}

// look reads what stands there, at the registry's leader, and judges what is to
// be done. wanted is nil for a job to be pruned.
func (p *plan) look(ctx context.Context, e *edit, name string, wanted *job.Job) error {
	entry, revision, err := p.cfg.Jobs.Read(ctx, name)
	p.cfg.Alive()
	old := &entry
	switch {
	case errors.Is(err, job.ErrNotFound):
		old = nil
	case errors.Is(err, job.ErrVersion):
		return fmt.Errorf("a newer program wrote it: %w", err)
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
	next, change, err := core.Upsert(old, wanted, core.OwnerOperator, p.cfg.Who, true)
	if err != nil {
		return err
	}
	if e.Broken != nil {
		next.Applied = false // whoever created it: nobody knows
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
	if old == nil || !prunable(*old) {
		return nil // not ours to remove
	}
	e.Action = Delete
	before := old.Job.Plan()
	var err error
	_, e.Disappear, err = slots(e.Job, &before, nil, p.now)
	return err
}
