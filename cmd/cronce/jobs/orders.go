package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

func newJobPauseCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "pause NAME",
		Short: "Stop publishing a job's slots until it is resumed",
		Long: `Pause stops publishing the slots of a job until the job is resumed. Slots that were
published before still run. Neither an edit nor the start of a node ends the pause.

With -o json; changed is false if the job was already paused:

  {"job":"report","paused":true,"revision":14,"changed":true}`,
		Example: `  cronce job pause report

  # for a maintenance: pause all jobs, and later end the pauses that began here
  cronce job ls -o json | jq -r 'select(.paused | not).job' > paused
  xargs -n 1 cronce job pause < paused
  xargs -n 1 cronce job resume < paused`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnJob(cmd.Context(), "job pause", args[0], pause)
		},
	}
}

func pause(ctx context.Context, r base.Session, name string) error {
	e, err := r.Client().Pause(ctx, name)
	if err != nil {
		return err
	}
	text := "paused " + name
	if !e.Changed {
		text = name + " has been paused since " + e.PausedSince().Format(time.RFC3339)
	}
	return r.Print(row.Paused(e), "%s\n", text)
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
	return "paused since " + would.Since.UTC().Format(time.RFC3339) + ": " + missed(would.Job, would.Missed, would.Runs)
}

// missed says which runs the end of a job's pause brings. n slots were missed, and runs of them will run.
func missed(j job.Job, n, runs int) string {
	switch {
	case j.On.Stream != "":
		return fmt.Sprintf("the messages of stream %s wait there, and will run", j.On.Stream)
	case len(j.After) > 0:
		return "each slot whose turn came is recorded as missed, and none will run"
	}
	return fmt.Sprintf("%d missed; with policy %s, %d will run", n, j.WithDefaults().CatchUp.Policy, runs)
}

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
	text := fmt.Sprintf("released %s: the next node that starts with a different definition replaces this one", name)
	if !e.Changed {
		text = fmt.Sprintf("%s is not owned by an operator (owner: %s)", name, printable.Clip(e.Owner, base.WidestCell))
	}
	return r.Print(row.Released(e), "%s\n", text)
}

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
					err := r.JobError(ctx, name, r.Client().Remove(ctx, name, client.RemoveOptions{}))
					if err == nil {
						err = r.Print(row.Remove{Job: name, Removed: true}, "removed %s\n", name)
					}
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
