package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func newJobCommand(a *app) *cobra.Command {
	return newGroup("job", "The jobs in the registry",
		newJobListCommand(a), newJobShowCommand(a), newJobNextCommand(a), newJobApplyCommand(a), newJobRemoveCommand(a),
		newJobPauseCommand(a), newJobResumeCommand(a), newJobReleaseCommand(a),
		newJobTriggerCommand(a), newJobBackfillCommand(a))
}

func newJobListCommand(a *app) *cobra.Command {
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
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.read(cmd.Context(), "job ls", func(ctx context.Context, r reader) error {
				jobs, err := r.jobs(ctx)
				if err != nil {
					return err
				}
				now := a.now()
				return printRows(a, jobs, "no jobs", "JOB\tSCHEDULE\tTIMEZONE\tQUEUE\tNEXT\tLAST\tSTATE\tHANDLERS", func(j jobRow) []string {
					return j.cells(now)
				})
			})
		},
	}
}

type jobRow struct {
	Job       string    `json:"job"`
	Schedule  string    `json:"schedule"`
	After     []string  `json:"after,omitempty"`
	On        job.On    `json:"on,omitzero"`
	Timezone  string    `json:"timezone"`
	Queue     string    `json:"queue"`
	Revision  uint64    `json:"revision"`
	Owner     string    `json:"owner,omitempty"`
	Paused    bool      `json:"paused"`
	Next      time.Time `json:"next,omitzero"`
	Last      time.Time `json:"last,omitzero"`
	LastState job.State `json:"last_state,omitempty"`
	Handlers  int       `json:"handlers"`
	Broken    string    `json:"broken,omitempty"`

	start string // in words
}

func (r reader) jobs(ctx context.Context) ([]jobRow, error) {
	entries, err := r.Jobs().List(ctx)
	broken, err := control.Broken(err)
	if err != nil {
		return nil, err
	}
	r.alive()
	now, err := r.Time(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := r.control().Workers(ctx, now)
	if err != nil {
		return nil, err
	}
	newest, err := r.newest(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]jobRow, 0, len(entries)+len(broken))
	for _, e := range entries {
		row, err := newJobRow(e, r.now())
		if err != nil && !r.unreadable(err) {
			return nil, err
		}
		row.Handlers = len(workers.Of(e.Job))
		rows = append(rows, row)
	}
	for _, b := range broken {
		rows = append(rows, jobRow{Job: b.Name, Revision: b.Revision, Broken: oneLine(b.Err).Error()})
	}
	for i := range rows {
		last := newest[rows[i].Job]
		rows[i].Last, rows[i].LastState = last.at, last.state
	}
	slices.SortFunc(rows, func(x, y jobRow) int { return cmp.Compare(x.Revision, y.Revision) })
	return rows, nil
}

func newJobRow(e job.Entry, now time.Time) (jobRow, error) {
	j := e.Job.WithDefaults()
	row := jobRow{
		Job: j.Name, Schedule: j.Schedule, After: j.After, On: j.On, Timezone: j.Timezone, Queue: j.Queue,
		Revision: e.Revision, Owner: e.Owner, Paused: e.Paused, start: j.Plan().Start(),
	}
	if e.Paused {
		return row, nil
	}
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if err == nil {
		row.Next = s.Next(now)
	}
	return row, err
}

// lastSlot is a job's newest slot that has a record.
type lastSlot struct {
	at    time.Time
	state job.State
}

// newest finds them in one pass over the ledger: it has no index by job.
func (r reader) newest(ctx context.Context) (map[string]lastSlot, error) {
	found := map[string]lastSlot{}
	for e, err := range r.Ledger().List(ctx, kv.ListFilter{}) {
		r.alive()
		if err != nil {
			if r.unreadable(err) {
				continue
			}
			return nil, err
		}
		at := e.Slot.At
		if e.Last.After(at) {
			at = e.Last // a range of missed slots
		}
		if at.After(found[e.Slot.Job].at) {
			found[e.Slot.Job] = lastSlot{at.UTC(), e.State}
		}
	}
	return found, nil
}

// zone is of no meaning to a job without a schedule.
func (j jobRow) zone() string {
	if j.Schedule == "" {
		return "-"
	}
	return j.Timezone
}

func (j jobRow) cells(now time.Time) []string {
	next, last := "-", "-"
	switch {
	case j.Broken != "":
		return []string{j.Job, brief("broken: "+j.Broken, 24), "-", "-", "never", "-", dash(string(j.LastState)), "-"}
	case j.Paused:
		next = "paused"
	case !j.Next.IsZero():
		next = relative(j.Next.Sub(now))
	}
	if !j.Last.IsZero() {
		last = relative(j.Last.Sub(now))
	}
	return []string{
		j.Job, brief(j.start, 24), j.zone(), j.Queue,
		next, last, dash(string(j.LastState)), strconv.Itoa(j.Handlers),
	}
}
