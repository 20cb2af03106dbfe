package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

// onSlot reads the one argument of a command about a slot, opens the namespace and calls f.
func onSlot(cmd *cobra.Command, args []string, open func(context.Context, string, func(context.Context, base.Session) error) error, f func(context.Context, base.Session, job.Slot) error) error {
	slot, err := job.ParseSlotID(args[0])
	if err != nil {
		return base.Try(base.Usage(err), cmd.Root().Name()+" slot ls")
	}
	return open(cmd.Context(), "slot "+cmd.Name(), func(ctx context.Context, r base.Session) error { return f(ctx, r, slot) })
}

// slotError adds the next step to an error of an operation on one slot.
func slotError(ctx context.Context, r base.Session, s job.Slot, err error) error {
	var refused *client.SlotError
	var conflict *client.SlotConflictError
	switch {
	case errors.As(err, &refused), errors.As(err, &conflict):
		return base.Try(err, "cronce slot explain "+quoted(s.ID()))
	case errors.Is(err, job.ErrNotFound):
		return r.NoSuchJob(ctx, s.Job)
	}
	return base.Unsettled(err)
}

func newSlotRetryCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID",
		Short: "Run a slot again that did not succeed",
		Long: `Retry reopens a slot that ended failed, missed, skipped, expired or cancelled. The slot
runs at once, with as many further attempts as its job has. It keeps its history and its
ID. If two operators retry a slot at the same time, one of them gets a conflict that
names the other.

A slot older than the horizon never runs; trigger its job instead. If a retry is
interrupted, the same command completes it.

With -o json, one line:

  {"id":"report:2026-11-21T07:00:00Z","state":"retrying","attempt":3,"attempts_left":3}`,
		Example: "  cronce slot retry report:2026-11-21T07:00:00Z",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onSlot(cmd, args, a.OpenTraced, func(ctx context.Context, r base.Session, slot job.Slot) error {
				done, err := r.Client().Retry(ctx, slot.ID())
				if err != nil {
					return slotError(ctx, r, slot, err)
				}
				return r.Print(row.Retried(done), "%s is retried, with %d attempts\n", printable.Line(slot.ID()), done.Left)
			})
		},
	}
}

func newSlotCancelCommand(a *base.App) *cobra.Command {
	wait := time.Minute
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a pending or running slot for good",
		Long: `Cancel ends a slot for good, whether it is pending, waits for a retry, or runs. Cancel
asks the node of a running slot to end it. The node cancels the handler's context at
once and records the outcome: cancelled, with the operator's name, or succeeded, if the
handler had finished. If the node does not answer, it must first be proved dead, which
takes one lease of silence.

With -o json, one line:

  {"id":"report:2026-11-21T07:00:00Z","state":"cancelled","error":"cancelled by alice@laptop"}`,
		Example: "  cronce slot cancel report:2026-11-21T07:00:00Z",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait <= 0 {
				return base.Usage(fmt.Errorf("invalid --wait %v: must be positive", wait))
			}
			return onSlot(cmd, args, a.Open, func(ctx context.Context, r base.Session, slot job.Slot) error {
				return cancelSlot(ctx, r, slot, wait)
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for a running slot to end")
	return cmd
}

// errStillRuns is the cause when --wait ends and the slot still runs.
var errStillRuns = errors.New("the slot still runs")

func cancelSlot(ctx context.Context, r base.Session, slot job.Slot, wait time.Duration) error {
	waiting, stop := context.WithTimeoutCause(ctx, wait, errStillRuns)
	defer stop()
	var last client.CancelWait
	logged := time.Now()
	record, err := r.Client().Cancel(waiting, slot.ID(), func(asked client.CancelWait) {
		// A short wait is not logged.
		if last = asked; time.Since(logged) >= 2*time.Second {
			logged = time.Now().Add(3 * time.Second)
			r.Log.Info(situation(asked), "slot", slot.ID(), "node", asked.Node)
		}
	})
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(context.Cause(waiting), errStillRuns):
		return base.Try(fmt.Errorf("slot %q still runs after %v: %s", slot.ID(), wait, situation(last)), "the same command again, with a longer --wait")
	case err != nil:
		return slotError(ctx, r, slot, err)
	case record.State != job.Cancelled:
		return base.Try(fmt.Errorf("slot %q was not cancelled: it had already ended %s", slot.ID(), record.State), "cronce slot show "+quoted(slot.ID()))
	}
	return r.Print(row.Cancelled(record), "%s is cancelled: %s\n", printable.Line(slot.ID()), base.Brief(record.Error, 200))
}

// situation describes what a cancel waits for.
func situation(a client.CancelWait) string {
	switch {
	case a.Ending:
		return "its node cancelled the handler's context, and the handler has not returned"
	case a.Silent:
		return fmt.Sprintf("its node does not answer; if it stays silent, it is declared dead in %v", a.Wait.Round(time.Second))
	}
	return "its handler has ended; its node is writing the outcome"
}
