package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
)

func newJobPauseCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "pause NAME",
		Short: "Stop publishing a job's slots until it is resumed",
		Long: `Pause stops publishing the slots of a job until the job is resumed. Slots that were
published before still run. Neither an edit nor the start of a node ends the pause.

With -o json; changed is false if the job was already paused:

  {"job":"report","paused":true,"revision":14,"changed":true}`,
		Example: "  cronce job pause report",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnJob(cmd.Context(), "job pause", args[0], pause)
		},
	}
}

func pause(ctx context.Context, r base.Session, name string) error {
	e, err := r.Client().Pause(ctx, name)
	switch {
	case err != nil:
		return err
	case r.Output == base.OutputJSON:
		return r.PrintJSON(row.Paused(e))
	case e.Changed:
		_, err = fmt.Fprintf(r.Stdout, "paused %s\n", name)
	default:
		_, err = fmt.Fprintf(r.Stdout, "%s has been paused since %s\n", name, e.PausedSince().Format(time.RFC3339))
	}
	return err
}

func newJobResumeCommand(a *base.App) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "End a job's pause, and show which missed slots will run",
		Long: `Resume ends a job's pause. The slots that fell due during the pause are missed, and
the job's catch_up policy decides which of them run. Resume prints that first. It
does not ask; --dry-run only prints it. To run other slots than the policy selects,
apply another policy first, or run "cronce job backfill" afterwards.

With -o json; changed is false if the job was not paused; runs is how many of the
missed slots the policy runs:

  {"job":"report","paused":false,"revision":15,"changed":true,"since":"2026-11-20T09:00:00Z",
   "missed":412,"policy":"latest","runs":1}`,
		Example: "  cronce job resume report --dry-run\n  cronce job resume report",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnJob(cmd.Context(), "job resume", args[0], func(ctx context.Context, r base.Session, name string) error {
				return resume(ctx, r, name, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would run, and change nothing")
	return cmd
}

func resume(ctx context.Context, r base.Session, name string, dryRun bool) error {
	would, err := r.Client().Resume(ctx, name, client.ResumeOptions{DryRun: true})
	if err != nil {
		return err
	}
	line := row.WouldResume(would)
	if r.Output != base.OutputJSON {
		if _, err := fmt.Fprintln(r.Stdout, resumption(would)); err != nil {
			return err
		}
	}
	if !dryRun {
		done, err := r.Client().Resume(ctx, name, client.ResumeOptions{Seen: &would.Revision})
		if err != nil {
			return err
		}
		line = line.Resumed(done)
	}
	switch {
	case r.Output == base.OutputJSON:
		return r.PrintJSON(line)
	case line.Changed:
		_, err = fmt.Fprintf(r.Stdout, "resumed %s\n", name)
	}
	return err
}

// resumption describes what runs if the pause ends.
func resumption(would client.Resumption) string {
	if !would.Paused {
		return would.Job.Name + " is not paused"
	}
	return fmt.Sprintf("paused since %s: %d missed; with policy %s, %d will run", would.Since.UTC().Format(time.RFC3339),
		would.Missed, would.Job.WithDefaults().CatchUp.Policy, would.Runs)
}
