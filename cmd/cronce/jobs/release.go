package jobs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/text/printable"
)

func newJobReleaseCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "release NAME",
		Short: "Let files and code change a job again after an operator's edit",
		Long: `Release ends an operator's ownership of a job, which "cronce job apply" began. The
job stays as it is until a node whose file or code defines it differently starts, or
reads its file again on SIGHUP. That definition then replaces this one.

With -o json; changed is false if no operator owned the job:

  {"job":"report","revision":14,"owner":"released","changed":true}`,
		Example: "  cronce job release report",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnJob(cmd.Context(), "job release", args[0], release)
		},
	}
}

func release(ctx context.Context, r base.Session, name string) error {
	e, err := r.Client().Release(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case r.Output == base.OutputJSON:
		return r.PrintJSON(row.Released(e))
	case e.Changed:
		_, err = fmt.Fprintf(r.Stdout, "released %s: the next node that starts with a different definition replaces this one\n", name)
	default:
		_, err = fmt.Fprintf(r.Stdout, "%s is not owned by an operator (owner: %s)\n", name, printable.Clip(e.Owner, base.WidestCell))
	}
	return err
}
