package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func newSlotCommand(a *app) *cobra.Command {
	return newGroup("slot", "The planned runs of the jobs, and what became of them", newSlotListCommand(a), newSlotShowCommand(a), newSlotExplainCommand(a), newSlotRetryCommand(a), newSlotCancelCommand(a))
}

// slotStates are all that "slot ls" may show.
var slotStates = []string{
	string(job.Pending), string(job.Running), string(job.Retrying), string(job.Succeeded), string(job.Failed),
	string(job.Skipped), string(job.Missed), string(job.Expired), string(job.Cancelled),
}

type slotFlags struct {
	job    string
	states []string
	since  duration
}

func newSlotListCommand(a *app) *cobra.Command {
	var f slotFlags
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the slots, oldest first",
		Long: `List the slots that have a record in the ledger, and those that wait in a stream,
which are pending: for a worker, or for the time that they were triggered for.
States: ` + strings.Join(slotStates[:5], ", ") + `,
` + strings.Join(slotStates[5:], ", ") + `.

With -o json, a line for each; what is absent is omitted, and slot for triggered
runs, which have no instant. fence is the one of the last attempt, started is when
that began:

  {"id":"report:2026-11-21T07:00:00Z","job":"report","slot":"2026-11-21T07:00:00Z","state":"succeeded","attempt":1,
   "fence":42,"node":"web1-711-0kq1-x2","queue":"default","due":"2026-11-21T07:00:00Z",
   "published":"2026-11-21T07:00:00.002Z","started":"2026-11-21T07:00:00.005Z",
   "finished":"2026-11-21T07:00:01.2Z","output":"done\n"}`,
		Example: `  cronce slot ls --job report --since 24h
  cronce slot ls --state failed --state expired
  cronce slot ls -o json | jq -r 'select(.attempt > 1) | .id'`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.read(cmd.Context(), "slot ls", func(ctx context.Context, r reader) error {
				slots, err := r.slots(ctx, f)
				if err != nil {
					return err
				}
				return printRows(a, slots, "no slots", slotHeader, slotRow.cells)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.job, "job", "", "of this `job` only")
	flags.StringSliceVar(&f.states, "state", nil, "in this `state` only; repeatable")
	flags.Var(&f.since, "since", "planned within this time before now, like 90m or 7d")
	complete(cmd, "state", slotStates...)
	return cmd
}

func (f slotFlags) check() error {
	if f.job != "" {
		if err := job.ValidateName("job", f.job); err != nil {
			return usage(err)
		}
	}
	for _, state := range f.states {
		if err := oneOf("--state", state, slotStates...); err != nil {
			return err
		}
	}
	return nil
}

type slotRow struct {
	ID        string    `json:"id"`
	Job       string    `json:"job"`
	Slot      time.Time `json:"slot,omitzero"`
	State     job.State `json:"state"`
	Attempt   int       `json:"attempt,omitempty"`
	Fence     uint64    `json:"fence,omitempty"`
	Node      string    `json:"node,omitempty"`
	Queue     string    `json:"queue,omitempty"`
	Due       time.Time `json:"due,omitzero"`
	Published time.Time `json:"published,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Finished  time.Time `json:"finished,omitzero"`
	Error     string    `json:"error,omitempty"`
	Output    string    `json:"output,omitempty"`
}

// slots merges the ledger with what waits in the stream. The stream is read
// first: a slot that is claimed, run and gone from it in between then shows by
// its record, and no slot falls between the two readings.
func (r reader) slots(ctx context.Context, f slotFlags) ([]slotRow, error) {
	var cutoff time.Time
	if f.since > 0 {
		cutoff = r.now().Add(-time.Duration(f.since))
	}
	waiting, err := r.waiting(ctx, f.job)
	if err != nil {
		return nil, err
	}
	var rows []slotRow
	add := func(row slotRow) {
		if !row.when().Before(cutoff) && (len(f.states) == 0 || slices.Contains(f.states, string(row.State))) {
			rows = append(rows, row)
		}
	}
	err = r.recorded(ctx, f.job, cutoff, func(row slotRow) {
		delete(waiting, row.ID)
		add(row)
	})
	if err != nil {
		return nil, err
	}
	for _, row := range waiting {
		add(row)
	}
	slices.SortFunc(rows, func(x, y slotRow) int {
		return cmp.Or(x.when().Compare(y.when()), strings.Compare(x.ID, y.ID))
	})
	return rows, nil
}

func (r reader) waiting(ctx context.Context, name string) (map[string]slotRow, error) {
	byID := map[string]slotRow{}
	for w, err := range r.Waiting(ctx, kv.WaitingFilter{Job: name}) {
		r.alive()
		if err != nil {
			if r.unreadable(err) {
				continue
			}
			return nil, err
		}
		byID[w.Slot.ID()] = pendingRow(w)
	}
	return byID, nil
}

func pendingRow(w kv.WaitingSlot) slotRow {
	row := slotRow{
		ID: w.Slot.ID(), Job: w.Slot.Job, Slot: w.Slot.At, State: job.Pending,
		Queue: w.Queue, Due: w.Due.UTC(), Published: w.Published.UTC(),
	}
	if w.Timer {
		row.Published = time.Time{} // not for workers, yet
	}
	return row
}

func (r reader) recorded(ctx context.Context, name string, cutoff time.Time, f func(slotRow)) error {
	filter := kv.ListFilter{Job: name}
	if !cutoff.IsZero() {
		// A record is written after its slot's instant; the minute is for this
		// machine's clock, which need not be the broker's.
		filter.Since = cutoff.Add(-time.Minute)
	}
	for e, err := range r.Ledger().List(ctx, filter) {
		r.alive()
		if err != nil {
			if r.unreadable(err) {
				continue
			}
			return err
		}
		f(newSlotRow(e))
	}
	return nil
}

func newSlotRow(e kv.LedgerEntry) slotRow {
	row := slotRow{
		ID: e.Slot.ID(), Job: e.Slot.Job, Slot: e.Slot.At, State: e.State, Attempt: e.Attempt,
		Node: e.Node, Queue: e.Queue, Due: e.Due.UTC(), Published: e.Published.UTC(),
		Finished: e.Finished.UTC(), Error: e.Error, Output: e.Output,
	}
	if n := len(e.Attempts); n > 0 {
		row.Fence, row.Started = e.Attempts[n-1].Fence, e.Attempts[n-1].Started.UTC()
	}
	if e.State == job.Running {
		row.Fence = e.Revision // its claim is the record's last write
	}
	return row
}

// when is where the slot stands in time: its instant; a triggered run's
// publication, or the time that it waits for.
func (s slotRow) when() time.Time {
	switch {
	case !s.Slot.IsZero():
		return s.Slot
	case !s.Published.IsZero():
		return s.Published
	}
	return s.Due
}

const slotHeader = "SLOT\tSTATE\tTRY\tLATE\tTOOK\tNODE OR ERROR"

func (s slotRow) cells() []string {
	attempt, late, took, detail := "-", "-", "-", s.Node
	if s.Attempt > 0 {
		attempt = strconv.Itoa(s.Attempt)
	}
	if !s.Started.IsZero() && !s.Due.IsZero() {
		late = span(max(0, s.Started.Sub(s.Due)))
	}
	if !s.Started.IsZero() && !s.Finished.IsZero() {
		took = span(max(0, s.Finished.Sub(s.Started)))
	}
	switch {
	case s.Error != "":
		detail = brief(s.Error, 120) // the last column: a wide terminal has room
	case s.State == job.Pending && s.Published.IsZero():
		detail = "waits for " + s.Due.Format(time.RFC3339)
	}
	return []string{s.ID, string(s.State), attempt, late, took, dash(detail)}
}
