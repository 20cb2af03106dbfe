package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/job"
)

func newJobNextCommand(a *app) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "List the coming slots of a job in the registry",
		Long: `Next lists the slots of a job as the registry has it, strictly after --from and
before --until, at most --count. Of a paused job it lists those that it would have,
and says so. For a job that is in no registry: cronce next.

With -o json it prints a line for each slot:

  {"slot":"2026-03-29T01:00:00Z","local":"2026-03-29T03:00:00+02:00"}`,
		Example: "  cronce job next report --count 3",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.times(a.now()); err != nil {
				return try(usage(err), "cronce job next --help")
			}
			return a.onJob(cmd.Context(), "job next", args[0], func(r reader, ctx context.Context, name string) error {
				return r.nextOf(ctx, name, f)
			})
		},
	}
	f.addTimes(cmd)
	return cmd
}

func (r reader) nextOf(ctx context.Context, name string, f nextFlags) error {
	e, _, err := r.Jobs().Read(ctx, name)
	if err != nil {
		return err
	}
	s, err := job.ParseSchedule(name, e.Job.Plan())
	if err != nil {
		return err
	}
	if e.Job.Schedule == "" {
		r.log.Warn("the job has no slots of its own", "job", name, "starts", e.Job.Plan().Start())
	}
	now, err := r.Time(ctx)
	if err != nil {
		return err
	}
	if f.from == "" {
		f.after = now
	}
	if e.Paused {
		r.log.Warn("the job is paused: these slots fall due only if it is resumed", "job", name, "since", pausedSince(e), "resume", "cronce job resume "+name)
	}
	return r.printNext(schedules{{"", s}}.slots(f), f, now)
}
