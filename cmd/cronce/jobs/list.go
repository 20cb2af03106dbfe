// Package jobs holds "cronce job", which reads and changes the jobs in the registry,
// and "cronce next", which lists the slots of a schedule without a server.
package jobs

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/control"
)

func NewCommand(a *base.App) *cobra.Command {
	return base.NewGroup("job", "The jobs in the registry",
		newJobListCommand(a), newJobShowCommand(a), newJobNextCommand(a), newJobApplyCommand(a), newJobRemoveCommand(a),
		newJobPauseCommand(a), newJobResumeCommand(a), newJobReleaseCommand(a),
		newJobTriggerCommand(a), newJobBackfillCommand(a))
}

func newJobListCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the jobs, oldest first",
		Long: `List the jobs in the registry, the one that was written last at the bottom: when
each runs next, its newest slot that has a record, what became of that, and how
many live nodes have a handler for the job. A job without a schedule shows what
starts it.

With -o json, a line for each; what is absent is omitted. A paused job has no next
slot; a job that others or messages start has none, an empty schedule, and after
("after":["extract"]) or on ("on":{"stream":"ORDERS","subject":"orders.paid"}). Of a
job whose stored definition cannot be read only the name and the
revision are certain, and broken says why; it has no slots, and disables no other:

  {"job":"report","schedule":"0 7 * * MON-FRI","timezone":"Europe/Berlin","queue":"default","revision":7,"owner":"file",
   "paused":false,"next":"2026-11-23T06:00:00Z","last":"2026-11-20T06:00:00Z","last_state":"succeeded","handlers":3}
  {"job":"backup","schedule":"","timezone":"","queue":"","revision":9,"paused":false,"handlers":0,"broken":"..."}`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), "job ls", func(ctx context.Context, r base.Reader) error {
				now := a.Now()
				list, err := r.Control().ListJobs(ctx, "", now)
				if err != nil {
					return err
				}
				r.LeftOut(list.Unreadable)
				return base.PrintRows(a, list.Jobs, "no jobs", "JOB\tSCHEDULE\tTIMEZONE\tQUEUE\tNEXT\tLAST\tSTATE\tHANDLERS", func(j control.ListedJob) []string {
					return jobCells(j, now)
				})
			})
		},
	}
}

func jobCells(j control.ListedJob, now time.Time) []string {
	next, last, zone := "-", "-", j.Timezone
	if j.Schedule == "" {
		zone = "-" // it is of no meaning
	}
	switch {
	case j.Broken != "":
		return []string{j.Job, base.Brief("broken: "+j.Broken, 24), "-", "-", "never", "-", base.Dash(string(j.LastState)), "-"}
	case j.Paused:
		next = "paused"
	case !j.Next.IsZero():
		next = base.Relative(j.Next.Sub(now))
	}
	if !j.Last.IsZero() {
		last = base.Relative(j.Last.Sub(now))
	}
	return []string{
		j.Job, base.Brief(j.Start, 24), zone, j.Queue,
		next, last, base.Dash(string(j.LastState)), strconv.Itoa(j.Handlers),
	}
}
