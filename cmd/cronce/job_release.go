package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/internal/printable"
)

func newJobReleaseCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "release NAME",
		Short: "Let files and code change a job again, after an edit by hand",
		Long: `Release ends an operator's hold on a job, which "cronce job apply" began. The job
stays as it is until a node starts that has another definition of it in its file
or code, or is sent SIGHUP: that one then counts.

With -o json; changed is false when no operator held the job:

  {"job":"report","revision":14,"owner":"released","changed":true}`,
		Example: "  cronce job release report",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onJob(cmd.Context(), "job release", args[0], reader.release)
		},
	}
}

func (r reader) release(ctx context.Context, name string) error {
	e, changed, err := r.control().Release(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case r.output == outputJSON:
		return r.printJSON(struct {
			Job      string `json:"job"`
			Revision uint64 `json:"revision"`
			Owner    string `json:"owner"`
			Changed  bool   `json:"changed"`
		}{name, e.Revision, e.Owner, changed})
	case changed:
		_, err = fmt.Fprintf(r.stdout, "released %s: the next node that starts with another definition of it brings that\n", name)
	default:
		_, err = fmt.Fprintf(r.stdout, "no operator holds %s (owner: %s)\n", name, printable.Clip(e.Owner, widestCell))
	}
	return err
}
