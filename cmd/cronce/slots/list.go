// Package slots holds "cronce slot", which shows, explains, retries and cancels slots,
// and "cronce watch", which prints events as they happen.
package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

func NewCommand(a *base.App) *cobra.Command {
	return base.NewGroup("slot", "List, explain, follow, wait for, retry and cancel slots", newSlotListCommand(a), newSlotShowCommand(a), newSlotExplainCommand(a), newSlotWaitCommand(a), newSlotTailCommand(a), newSlotRetryCommand(a), newSlotCancelCommand(a))
}

// slotStates are the states that "slot ls" can show.
var slotStates = codec.Strings(client.SlotStates()...)

type slotFlags struct {
	job    string
	states []string
	since  base.Duration
	ended  base.Duration
	limit  int
	newest bool
}

func newSlotListCommand(a *base.App) *cobra.Command {
	var f slotFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the slots, oldest first",
		Long: `List the slots that have a record in the ledger, and the pending ones: slots that wait
in the stream for a worker, or for the time that they were triggered for.
States: ` + strings.Join(slotStates[:5], ", ") + `,
` + strings.Join(slotStates[5:], ", ") + `.

With -o json, one line for each slot; absent values are omitted. A triggered run has no
instant, so it has no slot. fence and started belong to the last attempt:

  {"id":"report:2026-11-21T07:00:00Z","job":"report","slot":"2026-11-21T07:00:00Z","state":"succeeded","attempt":1,
   "fence":42,"node":"web1-711-0kq1-x2","queue":"default","due":"2026-11-21T07:00:00Z",
   "published":"2026-11-21T07:00:00.002Z","started":"2026-11-21T07:00:00.005Z",
   "finished":"2026-11-21T07:00:01.2Z","output":"done\n"}

A range of missed slots is one line, with their count and the instant of the last. If the job's
action did not run, because the worker's file has shadow: true for the job, a slot is succeeded and
has "shadow":true.`,
		Example: `  cronce slot ls --job report --since 24h
  cronce slot ls --state failed --state expired
  cronce slot ls --state failed --ended-since 1h
  cronce slot ls --job report --limit 10 --newest
  cronce slot ls -o json | jq -r 'select(.attempt > 1) | .id'`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed("limit")); err != nil {
				return err
			}
			return a.Open(cmd.Context(), "slot ls", func(ctx context.Context, r base.Session) error {
				list, err := listed(ctx, r, f.filter(a.Now()))
				if err != nil {
					return err
				}
				r.LogUnreadable(list.Unreadable)
				return base.PrintRows(a, list.Slots, "no slots", SlotHeader, SlotCells)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.job, "job", "", "list only slots of this `job`")
	flags.StringSliceVar(&f.states, "state", nil, "list only slots in this `state`; repeatable")
	flags.Var(&f.since, "since", "list only slots planned within this time before now, like 90m or 7d")
	flags.Var(&f.ended, "ended-since", "list only slots that ended within this time before now, whenever they were planned")
	flags.IntVar(&f.limit, "limit", 0, "list at most this many slots, the oldest (default: all)")
	flags.BoolVar(&f.newest, "newest", false, "with --limit: list the newest slots, which is fast however many there are")
	base.Complete(cmd, "state", slotStates...)
	return cmd
}

func (f slotFlags) check(limited bool) error {
	switch {
	case limited && f.limit < 1:
		return base.Usage(fmt.Errorf("invalid --limit %d: must be at least 1; leave it out for all", f.limit))
	case f.newest && !limited:
		return base.Try(base.Usage(errors.New("--newest needs --limit")), "--newest --limit 10")
	}
	if err := codec.ValidateJobFilter(f.job); err != nil {
		return base.Usage(err)
	}
	return base.OneOf("--state", slotStates, f.states...)
}

func (f slotFlags) filter(now time.Time) client.SlotFilter {
	filter := client.SlotFilter{Job: f.job, Limit: f.limit, Newest: f.newest}
	for _, state := range f.states {
		filter.States = append(filter.States, job.State(state))
	}
	if f.since > 0 {
		filter.Since = now.Add(-time.Duration(f.since))
	}
	if f.ended > 0 {
		filter.EndedSince = now.Add(-time.Duration(f.ended))
	}
	return filter
}

// listed returns the slots of the filter. A page may have fewer rows than the limit although
// there are more.
func listed(ctx context.Context, r base.Session, f client.SlotFilter) (all client.SlotList, err error) {
	for {
		page, err := r.Client().ListSlots(ctx, f)
		if err != nil {
			return all, err
		}
		all.Slots = append(all.Slots, page.Slots...)
		all.Unreadable = append(all.Unreadable, page.Unreadable...)
		if f.Limit -= len(page.Slots); f.Limit <= 0 || page.Next == "" || f.Newest {
			return all, nil
		}
		f.After = page.Next
	}
}

const SlotHeader = "SLOT\tSTATE\tTRY\tLATE\tTOOK\tNODE OR ERROR"

func SlotCells(s client.SlotRow) []string {
	attempt, late, took, detail := "-", "-", "-", s.Node
	if s.Attempt > 0 {
		attempt = strconv.Itoa(s.Attempt)
	}
	if !s.First.IsZero() && !s.Due.IsZero() {
		late = base.Span(max(0, s.First.Sub(s.Due)))
	}
	if !s.Started.IsZero() && !s.Finished.IsZero() {
		took = base.Span(max(0, s.Finished.Sub(s.Started)))
	}
	switch {
	case s.Count > 0:
		detail = fmt.Sprintf("%d slots, the last one %s", s.Count, s.Last.Format(time.RFC3339))
	case s.Error != "":
		detail = base.Brief(s.Error, 120) // the last column: a wide terminal has room
	case s.Shadow:
		detail = "shadow, on " + s.Node
	case s.State == job.Pending && s.Published.IsZero():
		detail = "waits for " + s.Due.Format(time.RFC3339)
	}
	return []string{s.ID, string(s.State), attempt, late, took, cmp.Or(detail, "-")}
}
