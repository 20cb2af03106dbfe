package control

import (
	"context"

	"github.com/cronce-io/cronce/internal/core"
)

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
