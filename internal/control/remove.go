package control

import (
	"context"

	"github.com/cronce-io/cronce/internal/codec"
)

// Remove takes the job out of the registry as it stands: an edit that comes
// between is not removed unseen. A definition that cannot be read can be removed
// all the same. job.ErrNotFound: there is none.
func (c *Control) Remove(ctx context.Context, name string) error {
	if err := codec.ValidateName("job", name); err != nil {
		return err
	}
	_, revision, err := c.cfg.Jobs.Read(ctx, name)
	c.cfg.Alive()
	if err != nil && !unreadable(err) {
		return err
	}
	return c.explain(ctx, name, c.cfg.Jobs.Delete(ctx, name, revision))
}
