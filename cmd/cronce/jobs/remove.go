package jobs

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

func newJobRemoveCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove jobs from the registry",
		Long: `Remove jobs from the registry: they get no more slots. Pending slots are recorded as
cancelled; a running slot runs to its end. Records stay until the retention ends.

A job that is defined in a node's file or code comes back when that node starts again:
remove it there first.

If a job is not in the registry, the others are removed, and the status is 1. So you can
repeat a command that failed half-way.

With -o json, one line for each job removed:

  {"job":"report","removed":true}`,
		Example: "  cronce job rm report",
		Args:    base.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := codec.ValidateName("job", names...); err != nil {
				return base.Usage(err)
			}
			return a.Open(cmd.Context(), "job rm", func(ctx context.Context, r base.Session) error {
				var missing error
				for _, name := range names {
					err := removeJob(ctx, r, name)
					switch {
					case errors.Is(err, job.ErrNotFound):
						missing = errors.Join(missing, err)
					case err != nil:
						return errors.Join(err, missing)
					}
				}
				return missing
			})
		},
	}
}

func removeJob(ctx context.Context, r base.Session, name string) error {
	if err := r.Client().Remove(ctx, name, client.RemoveOptions{}); err != nil {
		return r.JobError(ctx, name, err)
	}
	return r.Print(row.Remove{Job: name, Removed: true}, "removed %s\n", name)
}
