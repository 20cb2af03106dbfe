package jobs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
)

func newJobRemoveCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove jobs from the registry",
		Long: `Remove jobs from the registry: they get no more slots. Pending slots are recorded as
cancelled; a running slot runs to its end. Records stay until the retention ends.

A job that is defined in a node's file or code comes back when that node starts again:
remove it there first.

With -o json, one line for each job removed:

  {"job":"report","removed":true}`,
		Example: "  cronce job rm report",
		Args:    base.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := codec.ValidateName("job", names...); err != nil {
				return base.Usage(err)
			}
			return a.Open(cmd.Context(), "job rm", func(ctx context.Context, r base.Session) error {
				for _, name := range names {
					if err := removeJob(ctx, r, name); err != nil {
						return err
					}
				}
				return nil
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
