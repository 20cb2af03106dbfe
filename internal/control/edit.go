package control

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
)

// Pause pauses a job: until it is resumed, none of its slots is published. Slots that were
// published before still run. If the job is paused already, Pause writes nothing and
// returns false.
func (c *Control) Pause(ctx context.Context, name string) (core.Entry, bool, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return e, false, err
	}
	next, running := core.Pause(e, c.cfg.Operator)
	return c.revise(ctx, e, next, running)
}

// revise replaces e with next. If changed is false, it writes nothing.
func (c *Control) revise(ctx context.Context, e core.Entry, next core.Definition, changed bool) (core.Entry, bool, error) {
	if !changed {
		return e, false, nil
	}
	revision, err := c.write(ctx, next, e.Revision)
	if err != nil {
		return e, false, err
	}
	e.Definition, e.Revision = next, revision
	return e, true, nil
}

// Resumption is what Resume would do to a job.
type Resumption struct {
	// Entry is the job's entry. Resume writes only if it is still the same.
	core.Entry

	// Since is when the pause began. It is zero if the job is not paused.
	Since time.Time

	// Missed is how many slots became due during the pause. Runs is how many of them the
	// job's catch-up policy would run.
	Missed, Runs int
}

// PreviewResume returns what Resume would do now. It writes nothing.
func (c *Control) PreviewResume(ctx context.Context, name string) (Resumption, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return Resumption{}, err
	}
	r := Resumption{Entry: e}
	if !e.Paused {
		return r, nil
	}
	r.Since = e.Pauses[len(e.Pauses)-1].From
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return r, err
	}
	r.Missed, r.Runs, err = e.IfResumed(now, c.cfg.Settings.Horizon)
	return r, err
}

// Resume ends a pause. r comes from PreviewResume. If the job has changed since then, Resume
// returns a ConflictError, since r may no longer hold. If the job is not paused, Resume
// writes nothing and returns false.
func (c *Control) Resume(ctx context.Context, r Resumption) (core.Entry, bool, error) {
	next, paused := core.Resume(r.Entry, c.cfg.Operator)
	return c.revise(ctx, r.Entry, next, paused)
}

// Release lets files and code change the job again after an operator's edit. The job stays
// as it is until a node with another definition of it starts or reloads its file. If no
// operator holds the job, Release writes nothing and returns false.
func (c *Control) Release(ctx context.Context, name string) (core.Entry, bool, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return e, false, err
	}
	next, held := core.ReleaseHold(e, c.cfg.Operator)
	return c.revise(ctx, e, next, held)
}

// Remove removes a job from the registry, also if its definition cannot be read. If another
// writer changes the job at the same time, Remove returns a ConflictError. If there is no
// such job, the error matches job.ErrNotFound.
func (c *Control) Remove(ctx context.Context, name string) error {
	if err := codec.ValidateName("job", name); err != nil {
		return err
	}
	_, revision, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	if err != nil && !core.IsUnreadable(err) {
		return err
	}
	return c.conflict(ctx, name, c.cfg.Jobs.Delete(ctx, name, revision))
}
