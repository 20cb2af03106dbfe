package jobs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/printable"
)

func newJobReleaseCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "release NAME",
		Short: "Let files and code change a job again, after an edit by hand",
		Long: `Release ends an operator's hold on a job, which "cronce job apply" began. The job
stays as it is until a node starts that has another definition of it in its file
or code, or is sent SIGHUP: that one then counts.

With -o json; changed is false when no operator held the job:

  {"job":"report","revision":14,"owner":"released","changed":true}`,
		Example: "  cronce job release report",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnJob(cmd.Context(), "job release", args[0], func(ctx context.Context, r base.Reader, name string) error {
				return release(ctx, r, name)
			})
		},
	}
}

func release(ctx context.Context, r base.Reader, name string) error {
	e, changed, err := r.Control().Release(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case r.Output == base.OutputJSON:
		return r.PrintJSON(struct {
			Job      string `json:"job"`
			Revision uint64 `json:"revision"`
			Owner    string `json:"owner"`
			Changed  bool   `json:"changed"`
		}{name, e.Revision, e.Owner, changed})
	case changed:
		_, err = fmt.Fprintf(r.Stdout, "released %s: the next node that starts with another definition of it brings that\n", name)
	default:
		_, err = fmt.Fprintf(r.Stdout, "no operator holds %s (owner: %s)\n", name, printable.Clip(e.Owner, base.WidestCell))
	}
	return err
}
