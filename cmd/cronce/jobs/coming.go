package jobs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
)

func newJobNextCommand(a *base.App) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "List the coming slots of a job in the registry",
		Long: `Next lists the slots of a job in the registry, strictly after --from and before
--until, at most --count. For a paused job it lists the slots that the job would have
without the pause, and warns. For a job that is not in the registry, use cronce next.

With -o json it prints a line for each slot:

  {"slot":"2026-03-29T01:00:00Z","local":"2026-03-29T03:00:00+02:00"}`,
		Example: "  cronce job next report --count 3",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkCount(); err != nil {
				return base.Try(base.Usage(err), "cronce job next --help")
			}
			return a.OnJob(cmd.Context(), "job next", args[0], func(ctx context.Context, r base.Session, name string) error {
				return nextOf(ctx, r, name, f)
			})
		},
	}
	f.addTimes(cmd)
	return cmd
}

func nextOf(ctx context.Context, r base.Session, name string, f nextFlags) error {
	coming, err := r.Client().Next(ctx, name)
	if err != nil {
		return err
	}
	if !coming.Job.Plan().Scheduled() {
		r.Log.Warn("job has no schedule, so no slots of its own", "job", name, "starts", coming.Job.Plan().Start())
	}
	if coming.Paused {
		r.Log.Warn("job is paused: these slots are published only if it is resumed", "job", name, "since", coming.PausedSince(), "resume", "cronce job resume "+name)
	}
	return printNext(r.App, row.Coming(coming, f.from.Time, f.until.Time, f.count), f, coming.Now)
}
