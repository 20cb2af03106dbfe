package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// ApplyOptions change what Apply does.
type ApplyOptions struct {
	// Prune also removes each job that an earlier Apply created and that still has the owner
	// "operator", unless it is one of the jobs of this call. It never removes a job that a node's
	// file or code created, or a job that was released.
	Prune bool

	// BeforePrune is called before anything is written if jobs are to be pruned: with their names, and the
	// number of jobs in the registry that Apply created. If it returns an error, Apply writes nothing and
	// returns that error. Nil: all of them are pruned.
	BeforePrune func(names []string, of int) error

	// DryRun writes nothing.
	DryRun bool

	// Seen is the registry's revision that the caller has seen. If one of the jobs to be
	// changed was written after it, nothing is changed. So yesterday's file does not
	// overwrite today's edit. Nil: any revision.
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

	// Revision is the job's revision after the operation. If the operation did not write the job,
	// or has deleted it, Revision is the one before.
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

	// Stored is the job as it is stored after the operation. Not set with Delete.
	Stored job.Job

	// Missing are the jobs that this job comes after and that do not exist. Before they exist,
	// only a trigger starts this job.
	Missing []string

	// Handlers is the number of live nodes that would run the job.
	Handlers int

	// Err is why this job was not changed. If it wraps job.ErrUnknown, the job may have been
	// changed.
	Err error
}

// Apply stores the jobs in the registry, with the owner "operator" (see Definition.Owner). It
// returns a result for each job in the given order, then one for each job that it pruned. To roll
// back, apply an older definition again.
//
// Nothing is written if one of the jobs is invalid, or was written after Seen. If another
// writer changes a job at the same time, Apply leaves that job, writes the others, and prunes none.
// Any other failure ends it. The returned error is the first one in the results.
func (c *Client) Apply(ctx context.Context, jobs []job.Job, o ApplyOptions) ([]Applied, error) {
	p, err := c.planApply(ctx, jobs, o)
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		if err := p.askToPrune(o); err != nil {
			return nil, err
		}
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

func (p *applyPlan) askToPrune(o ApplyOptions) error {
	var names []string
	for _, e := range p.edits {
		if e.Action == Delete {
			names = append(names, e.Job)
		}
	}
	if len(names) == 0 || o.BeforePrune == nil {
		return nil
	}
	return o.BeforePrune(names, p.applied)
}

// ErrNotTried is the error of jobs that were not changed because another one failed, or because ctx
// ended.
var ErrNotTried = errors.New("not tried, since another job could not be written")

// carryOut writes the creations and updates, and then the deletions. If a write fails, it deletes
// nothing: if a job was renamed, it would otherwise be missing under both names.
func (p *applyPlan) carryOut(ctx context.Context) {
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

// pass carries out the edits of these actions and reports whether all succeeded. After a failure
// other than a conflict it starts no further edit, but waits for the running ones.
func (p *applyPlan) pass(ctx context.Context, kinds ...Action) bool {
	var conflicts, failed atomic.Bool
	_ = each(ctx, len(p.edits), func(ctx context.Context, i int) error {
		e := &p.edits[i]
		switch {
		case !slices.Contains(kinds, e.Action):
			return nil
		case failed.Load() || ctx.Err() != nil:
			e.Err = fmt.Errorf("job %s: %w", e.Job, ErrNotTried)
			return nil
		}
		e.Err = p.carryOutEdit(ctx, e)
		if errors.Is(e.Err, job.ErrConflict) {
			conflicts.Store(true)
		} else if e.Err != nil {
			failed.Store(true)
		}
		return nil
	})
	return !conflicts.Load() && !failed.Load() && ctx.Err() == nil
}

// carryOutEdit writes one job. If another writer has stored the same definition meanwhile,
// carryOutEdit succeeds.
func (p *applyPlan) carryOutEdit(ctx context.Context, e *edit) error {
	if e.Action == Delete {
		err := p.conflict(ctx, e.Job, p.cfg.Jobs.Delete(ctx, e.Job, e.revision))
		if err == nil {
			p.ordered(ctx, "remove", job.Event{Job: e.Job, Time: p.now})
		}
		return err
	}
	won, err := p.write(ctx, e.definition, e.revision)
	if err == nil {
		e.Revision = won
		p.ordered(ctx, string(e.Action), job.Event{Job: e.Job, JobRevision: won, Time: p.now})
	}
	if !errors.Is(err, job.ErrConflict) {
		return err
	}
	again := edit{}
	if p.planEdit(ctx, &again, e.Job, &e.definition.Job) == nil && again.Action == Keep {
		*e = again
		return nil
	}
	return err
}

// Edited is a job after an order that changes one job.
type Edited struct {
	// Definition is the job as it is stored now. If Changed is true, Written and Pauses are still
	// the values before the write: the broker's clock sets the new ones, which the client does
	// not read.
	Definition

	// Changed is false if the job was already as ordered. Then nothing was written.
	Changed bool
}

// Pause pauses a job: until it is resumed, none of its slots is published. Slots that were
// published before still run, and the job can be triggered. Neither an edit nor the start
// of a node ends the pause.
func (c *Client) Pause(ctx context.Context, name string) (Edited, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return Edited{}, err
	}
	next, running := plans.Pause(e, c.cfg.Operator)
	return c.revise(ctx, "pause", e, next, running)
}

// Drain waits until no planned slot of a paused job is left to run. Call it after Pause, for example
// before a migration. First it waits until the producers have published every slot that fell due before
// the pause: if they had no broker for a while, they publish such slots long after it. Then it waits for
// the outcomes of all slots that are published, and of the triggered runs whose time has come. A run
// that is triggered during the call may still run after it. If no producer lives, Drain waits until ctx
// ends.
//
// If the job is not paused, or was resumed meanwhile, the error wraps job.ErrInvalid.
func (c *Client) Drain(ctx context.Context, name string) error {
	e, err := c.readPaused(ctx, name)
	if err != nil {
		return err
	}
	if err := c.published(ctx, newDefinition(e).PausedSince(), e.Revision); err != nil {
		return fmt.Errorf("drain job %s: wait for the slots that fell due before its pause: %w", name, err)
	}
	unfinished := SlotFilter{Job: name, States: []job.State{job.Pending, job.Running, job.Retrying}}
	for slot, err := range c.Slots(ctx, unfinished) {
		later := slot.State == job.Pending && slot.Published.IsZero() // it was triggered for a later time
		if err == nil && !later {
			_, err = c.Wait(ctx, slot.ID)
		}
		if err != nil && !errors.Is(err, job.ErrNotFound) { // a shard may end with its slot, without a record
			return fmt.Errorf("drain job %s: %w", name, err)
		}
	}
	_, err = c.readPaused(ctx, name)
	return err
}

func (c *Client) readPaused(ctx context.Context, name string) (plans.Entry, error) {
	e, err := c.read(ctx, name)
	if err == nil && !e.Paused {
		err = fmt.Errorf("%w order: job %s is not paused: pause it first", job.ErrInvalid, name)
	}
	return e, err
}

// watermarkPause is the pause between two reads of the watermark, which moves once a second.
const watermarkPause = 500 * time.Millisecond

// published waits until the watermark says that every slot due up to t is published, by a producer
// that knows the registry up to revision.
func (c *Client) published(ctx context.Context, t time.Time, revision uint64) error {
	for {
		w, _, err := c.cfg.Watermark.Read(ctx)
		c.cfg.Alive()
		switch {
		case err == nil && !w.Time.Before(t) && w.Revision >= revision:
			return nil
		case err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err): // a producer writes it again
			return err
		}
		if err := pause(ctx, watermarkPause); err != nil {
			return err
		}
	}
}

// revise writes next in place of e, and publishes an event about the order. If changed is false, it
// does neither.
func (c *Client) revise(ctx context.Context, order string, e plans.Entry, next plans.Definition, changed bool) (Edited, error) {
	if !changed {
		return Edited{newDefinition(e), false}, nil
	}
	revision, err := c.write(ctx, next, e.Revision)
	if err != nil {
		return Edited{Definition: newDefinition(e)}, err
	}
	e.Definition, e.Revision = next, revision
	c.ordered(ctx, order, job.Event{Job: e.Job.Name, JobRevision: revision})
	return Edited{newDefinition(e), true}, nil
}

// ResumeOptions change what Resume does.
type ResumeOptions struct {
	// DryRun writes nothing: the result is what Resume would do now.
	DryRun bool

	// Seen is the registry's revision that the caller has seen, as in the result of a DryRun. If
	// the job was written after it, Resume returns a *ConflictError, because the number of slots
	// that run may differ from the one that the caller has seen. Nil: any revision.
	Seen *uint64
}

// Resumption is what Resume does to a job, or would do.
type Resumption struct {
	Edited

	// Since is when the pause began. It is zero if the job was not paused.
	Since time.Time

	// Missed is how many slots became due during the pause. Runs is how many of them the
	// job's catch-up policy runs.
	Missed, Runs int
}

// Resume ends a pause. The slots that became due during it are missed, and the job's
// catch-up policy decides which of them run. If another writer changes the job at the same
// time, Resume returns a *ConflictError and changes nothing.
func (c *Client) Resume(ctx context.Context, name string, o ResumeOptions) (Resumption, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return Resumption{}, err
	}
	r, err := c.resumption(ctx, e)
	switch {
	case err != nil || o.DryRun:
		return r, err
	case o.Seen != nil && e.Revision > *o.Seen:
		return r, newConflict(name, e, e.Revision)
	}
	next, paused := plans.Resume(e, c.cfg.Operator)
	r.Edited, err = c.revise(ctx, "resume", e, next, paused)
	return r, err
}

// resumption returns what Resume would do now.
func (c *Client) resumption(ctx context.Context, e plans.Entry) (Resumption, error) {
	r := Resumption{Edited: Edited{Definition: newDefinition(e)}}
	if !e.Paused {
		return r, nil
	}
	r.Since = r.PausedSince()
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return r, err
	}
	r.Missed, r.Runs, err = e.IfResumed(now, c.cfg.Settings.Horizon)
	return r, err
}

// Release lets files and code change the job again after an operator's edit. The job stays
// as it is until a node with another definition of it starts or reloads its file. If the job's
// owner is not "operator", Release changes nothing.
func (c *Client) Release(ctx context.Context, name string) (Edited, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return Edited{}, err
	}
	next, held := plans.ReleaseHold(e, c.cfg.Operator)
	return c.revise(ctx, "release", e, next, held)
}

// RemoveOptions change what Remove does.
type RemoveOptions struct {
	// Seen is the job's revision that the caller has seen. If the job has another one, Remove
	// returns a *ConflictError. Nil: any revision.
	Seen *uint64
}

// Remove removes a job from the registry, even if its definition cannot be read. If another
// writer changes the job at the same time, Remove returns a *ConflictError. If there is no such
// job, the error wraps job.ErrNotFound. A node whose file or code has the job creates it again
// when it starts.
func (c *Client) Remove(ctx context.Context, name string, o RemoveOptions) error {
	if err := codec.ValidateName("job", name); err != nil {
		return err
	}
	e, revision, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	switch {
	case errors.Is(err, job.ErrNotFound):
		return fmt.Errorf("job %s: %w", name, err)
	case err != nil && !exchange.IsUnreadable(err):
		return err
	case o.Seen != nil && revision != *o.Seen:
		return newConflict(name, e, revision)
	}
	err = c.conflict(ctx, name, c.cfg.Jobs.Delete(ctx, name, revision))
	if err == nil {
		c.ordered(ctx, "remove", job.Event{Job: name})
	}
	return err
}

// Definition is a job as the registry holds it.
type Definition struct {
	// Job is the job. If the definition is Broken, only its name is set.
	Job job.Job

	// Revision grows with each write of a job, across all jobs.
	Revision uint64

	// Written is when the job was last written, by the broker's clock. By is the node or
	// the operator that wrote it.
	Written time.Time
	By      string

	// Owner says which writers may change the job: "file" and "code" (any node that starts
	// with another definition), "operator" (operators only), or "released" (any).
	Owner string

	// Paused reports that none of the job's slots is published. Pauses are the pauses that
	// are known, oldest first; the last one is open if the job is Paused.
	Paused bool
	Pauses []Period

	// Plans are the job's plans over time, oldest first. The last one is in force.
	Plans []PastPlan

	// Broken is why the stored definition cannot be read. Such a job has no slots.
	Broken error

	entry plans.Entry
}

// Period is the time from From to To. If To is zero, the period has not ended.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
}

// PastPlan is a plan of a job, and the slots it applies to: those after From, up to and
// including To.
type PastPlan struct {
	Period
	Plan job.Plan `json:"plan"`
}

func newDefinition(e plans.Entry) Definition {
	return Definition{
		Job: e.Job, Revision: e.Revision, Written: e.Time.UTC(), By: e.Node, Owner: e.Owner, Paused: e.Paused, entry: e,
		Pauses: codec.Map(e.Pauses, func(w plans.Window) Period { return Period{w.From.UTC(), w.To.UTC()} }),
		Plans:  codec.Map(e.Plans(), func(p plans.PastPlan) PastPlan { return PastPlan{Period{p.From.UTC(), p.To.UTC()}, p.Plan} }),
	}
}

// brokenDefinition returns what is known of a definition that cannot be read. It reports
// false if err is another error.
func brokenDefinition(name string, err error) (d Definition, ok bool) {
	broken, ok := errors.AsType[*plans.EntryError](err)
	if !ok {
		return d, false
	}
	d.Job.Name, d.Revision, d.Written, d.Broken = name, broken.Revision, broken.Time.UTC(), broken.Err
	return d, true
}

// PausedSince returns when the current pause began. It is zero if the job is not paused.
func (d Definition) PausedSince() time.Time {
	if n := len(d.Pauses); d.Paused && n > 0 {
		return d.Pauses[n-1].From
	}
	return time.Time{}
}

// Value returns the definition as JSON, in the form in which the registry stores it.
// docs/protocol.md describes its members.
func (d Definition) Value() (json.RawMessage, error) { return json.Marshal(d.entry.Definition) }
