package control

import (
	"context"
	"fmt"

	"github.com/cronce-io/cronce/job"
)

// Release lets files and code change the job again, after a person's edit. The
// job stays as it is until a node starts that has another content for it, or is
// told to read its file again. It is false, and nothing is written, when no
// operator holds the job.
func (c *Control) Release(ctx context.Context, name string) (job.Entry, bool, error) {
	e, err := c.read(ctx, name)
	if err != nil {
		return e, false, err
	}
	next, held := job.ReleaseHold(e, c.cfg.Who)
	if !held {
		return e, false, nil
	}
	revision, err := c.write(ctx, next, e.Revision)
	if err != nil {
		return e, false, err
	}
	e.Definition, e.Revision = next, revision
	return e, true, nil
}

// read reads a job's entry at the registry's leader.
func (c *Control) read(ctx context.Context, name string) (job.Entry, error) {
	if err := job.ValidateName("job", name); err != nil {
		return job.Entry{}, err
	}
	e, _, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	if unreadable(err) {
		err = fmt.Errorf("the stored definition of job %s is broken: %w", name, err)
	}
	return e, err
}
