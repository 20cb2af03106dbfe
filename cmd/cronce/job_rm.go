package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/job"
)

func newJobRemoveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove jobs from the registry",
		Long: `Remove jobs from the registry: they have no slots any more. Slots that wait are
recorded as cancelled; one that runs goes on to its end. Records stay until they
are too old.

A job that stands in the file of a node, or in its code, comes back when that node
starts again: take it out there first.

With -o json, a line for each that was removed:

  {"job":"report","removed":true}`,
		Example: "  cronce job rm report",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			for _, name := range names {
				if err := job.ValidateName("job", name); err != nil {
					return usage(err)
				}
			}
			return a.read(cmd.Context(), "job rm", func(ctx context.Context, r reader) error {
				for _, name := range names {
					if err := r.removeJob(ctx, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (r reader) removeJob(ctx context.Context, name string) error {
	if err := r.control().Remove(ctx, name); err != nil {
		return r.ofJob(ctx, name, err)
	}
	if r.output == outputJSON {
		return r.printJSON(struct {
			Job     string `json:"job"`
			Removed bool   `json:"removed"`
		}{name, true})
	}
	_, err := fmt.Fprintf(r.stdout, "removed %s\n", name)
	return err
}
