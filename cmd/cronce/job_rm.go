package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/internal/suggest"
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

// removeJob removes the job as it stands: an edit that comes between is not
// removed unseen. A definition that cannot be read can be removed all the same.
func (r reader) removeJob(ctx context.Context, name string) error {
	_, revision, err := r.Jobs().Read(ctx, name)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return r.noSuchJob(ctx, name)
	case err != nil && !r.unreadable(err):
		return err
	}
	err = r.Jobs().Delete(ctx, name, revision)
	if errors.Is(err, job.ErrConflict) {
		return try(fmt.Errorf("job %s was changed in this moment, and is left as it is", name), "the same again")
	}
	if err != nil {
		return err
	}
	if r.output == outputJSON {
		return r.printJSON(struct {
			Job     string `json:"job"`
			Removed bool   `json:"removed"`
		}{name, true})
	}
	_, err = fmt.Fprintf(r.stdout, "removed %s\n", name)
	return err
}

func (r reader) noSuchJob(ctx context.Context, name string) error {
	var names []string
	entries, err := r.Jobs().List(ctx)
	if err != nil && !r.unreadable(err) {
		return err
	}
	for _, e := range entries {
		names = append(names, e.Job.Name)
	}
	hint := "cronce job ls"
	if near := suggest.Nearest(name, names); near != "" {
		hint = near
	}
	return try(fmt.Errorf("no job named %s: %w", name, job.ErrNotFound), hint)
}
