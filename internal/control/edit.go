package control

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
)

// Pause has what falls due of the job not be published, until it is resumed. What
// was published already still runs. It is false, and nothing is written, when the
// job is paused already.
func (c *Control) Pause(ctx context.Context, name string) (core.Entry, bool, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return e, false, err
	}
	next, running := core.Pause(e, c.cfg.Who)
	return c.revise(ctx, e, next, running)
}

// revise writes next over e, if there is something to write.
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

// Resumption is what the end of a pause would mean.
type Resumption struct {
	// Entry is the job's, as it was read.
	core.Entry

	// Since is when the pause began. Zero: the job is not paused.
	Since time.Time

	// Missed is how many slots fell due in the pause, Runs how many of them the
	// job's catch-up policy would run.
	Missed, Runs int
}

// IfResumed says what Resume would mean now.
func (c *Control) IfResumed(ctx context.Context, name string) (Resumption, error) {
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

// Resume ends the pause that r tells of. An edit since then is a conflict: what r
// tells may hold no more. It is false, and nothing is written, when the job is not
// paused.
func (c *Control) Resume(ctx context.Context, r Resumption) (core.Entry, bool, error) {
	next, paused := core.Resume(r.Entry, c.cfg.Who)
	return c.revise(ctx, r.Entry, next, paused)
}

// Release lets files and code change the job again, after a person's edit. The
// job stays as it is until a node starts that has another content for it, or is
// told to read its file again. It is false, and nothing is written, when no
// operator holds the job.
func (c *Control) Release(ctx context.Context, name string) (core.Entry, bool, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return e, false, err
	}
	next, held := core.ReleaseHold(e, c.cfg.Who)
	return c.revise(ctx, e, next, held)
}

// Remove takes the job out of the registry as it stands: an edit that comes
// between is not removed unseen. A definition that cannot be read can be removed
// all the same. job.ErrNotFound: there is none.
func (c *Control) Remove(ctx context.Context, name string) error {
	if err := codec.ValidateName("job", name); err != nil {
		return err
	}
	_, revision, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	if err != nil && !core.IsUnreadable(err) {
		return err
	}
	return c.explain(ctx, name, c.cfg.Jobs.Delete(ctx, name, revision))
}
