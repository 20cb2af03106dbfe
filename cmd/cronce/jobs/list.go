// Package jobs holds "cronce job", which reads and changes the jobs in the registry,
// and "cronce next", which lists the slots of a schedule without a server.
package jobs

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/job"
)

func NewCommand(a *base.App) *cobra.Command {
	return base.NewGroup("job", "List, change, pause and trigger jobs in the registry",
		newJobListCommand(a), newJobShowCommand(a), newJobNextCommand(a), newJobApplyCommand(a), newJobRemoveCommand(a),
		newJobPauseCommand(a), newJobResumeCommand(a), newJobReleaseCommand(a),
		newJobTriggerCommand(a), newJobBackfillCommand(a))
}

func newJobListCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the jobs, oldest first",
		Long: `List the jobs in the registry, the most recently written last: when each runs next,
its newest slot that has a record, the state of that slot, and how many live nodes have
a handler for the job. For a job without a schedule it shows what starts it. A state
with "shadow", in JSON "last_shadow":true, is that of a slot whose action did not run:
the worker's file has shadow: true for the job.

With -o json, one line for each job; absent values are omitted. A paused job has no
next slot. A job that other jobs or messages start has no next slot either; it has an
empty schedule, and after ("after":["extract"]) or on
("on":{"stream":"ORDERS","subject":"orders.paid"}). A job that runs only when it is
triggered has the schedule none. If a job's stored definition cannot
be read, only its name and revision are known, and broken is the reason. Such a job has
no slots, and does not affect other jobs:

  {"job":"report","schedule":"0 7 * * MON-FRI","timezone":"Europe/Berlin","queue":"default","revision":7,"owner":"file",
   "paused":false,"next":"2026-11-23T06:00:00Z","last":"2026-11-20T06:00:00Z","last_state":"succeeded","handlers":3}
  {"job":"backup","schedule":"","timezone":"","queue":"","revision":9,"paused":false,"handlers":0,"broken":"..."}`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Open(cmd.Context(), "job ls", func(ctx context.Context, r base.Session) error {
				now := a.Now()
				list, err := r.Client().Jobs(ctx, client.JobFilter{Now: now})
				if err != nil {
					return err
				}
				r.LogUnreadable(list.Unreadable)
				return base.PrintRows(a, list.Jobs, "no jobs", "JOB\tSCHEDULE\tTIMEZONE\tQUEUE\tNEXT\tLAST\tSTATE\tHANDLERS", func(j client.JobRow) []string {
					return jobCells(j, now)
				})
			})
		},
	}
}

func jobCells(j client.JobRow, now time.Time) []string {
	next, last, zone, state := "-", "-", j.Timezone, cmp.Or(string(j.LastState), "-")
	if j.LastShadow {
		state += ", shadow"
	}
	if !(job.Plan{Schedule: j.Schedule}).Scheduled() {
		zone = "-" // it has no effect
	}
	switch {
	case j.Broken != "":
		return []string{j.Job, base.Brief("broken: "+j.Broken, 24), "-", "-", "never", "-", state, "-"}
	case j.Paused:
		next = "paused"
	case !j.Next.IsZero():
		next = base.Relative(j.Next, now)
	}
	if !j.Last.IsZero() {
		last = base.Relative(j.Last, now)
	}
	return []string{
		j.Job, base.Brief(j.Start, 24), zone, j.Queue,
		next, last, state, strconv.Itoa(j.Handlers),
	}
}
