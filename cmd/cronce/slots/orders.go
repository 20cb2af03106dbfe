package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/printable"
	"github.com/cronce-io/cronce/job"
)

// slotArgument reads the one argument of a command about one slot.
func slotArgument(cmd *cobra.Command, args []string) (job.Slot, error) {
	slot, err := job.ParseSlotID(args[0])
	if err != nil {
		return slot, base.Try(base.Usage(err), cmd.Root().Name()+" slot ls")
	}
	return slot, nil
}

// ofSlot adds to an error of an operation on one slot what to do next.
func ofSlot(ctx context.Context, r base.Reader, s job.Slot, err error) error {
	var refused *control.SlotError
	var conflict *control.SlotConflictError
	switch {
	case errors.As(err, &refused), errors.As(err, &conflict):
		return base.Try(err, "cronce slot explain "+quoted(s.ID()))
	case errors.Is(err, job.ErrNotFound):
		return r.NoSuchJob(ctx, s.Job)
	case errors.Is(err, job.ErrDenied):
		return base.Denied(err)
	case errors.Is(err, job.ErrUnknown):
		return base.Try(err, "the same again, which settles it")
	}
	return err
}

func newSlotRetryCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID",
		Short: "Give a slot that did not succeed a new start",
		Long: `Give a slot that ended failed, missed, skipped, expired or cancelled a new start: at
once, with as many further attempts as its job has. Its history stays, and so does
its ID. Of two operators who do it at once one is told who was faster.

A slot that is older than the horizon is never run; trigger its job in its place.
A retry that was cut short is finished by the same command again.

With -o json, one line:

  {"id":"report:2026-11-21T07:00:00Z","state":"retrying","attempt":3,"attempts_left":3}`,
		Example: "  cronce slot retry report:2026-11-21T07:00:00Z",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			slot, err := slotArgument(cmd, args)
			if err != nil {
				return err
			}
			return a.Publish(cmd.Context(), "slot retry", func(ctx context.Context, r base.Reader) error {
				done, err := r.Control().Reopen(ctx, slot)
				if err != nil {
					return ofSlot(ctx, r, slot, err)
				}
				if r.Output == base.OutputJSON {
					return r.PrintJSON(struct {
						ID      string    `json:"id"`
						State   job.State `json:"state"`
						Attempt int       `json:"attempt"`
						Left    int       `json:"attempts_left"`
					}{slot.ID(), done.Record.State, done.Record.Attempt, done.Left})
				}
				_, err = fmt.Fprintf(r.Stdout, "%s is retried, with %d attempts\n", printable.Line(slot.ID()), done.Left)
				return err
			})
		},
	}
}

func newSlotCancelCommand(a *base.App) *cobra.Command {
	wait := time.Minute
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a slot that waits or runs, for good",
		Long: `End a slot for good, whether it waits in the stream, waits to be retried, or runs.
Of a running one the node is asked, which ends the handler's context at once and
records the outcome: cancelled, by whom, or succeeded, if the handler was done all
the same. A node that does not answer has to be proved dead first, which takes a
lease of silence.

With -o json, one line:

  {"id":"report:2026-11-21T07:00:00Z","state":"cancelled","error":"cancelled by alice@laptop"}`,
		Example: "  cronce slot cancel report:2026-11-21T07:00:00Z",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			slot, err := slotArgument(cmd, args)
			if err != nil {
				return err
			}
			if wait <= 0 {
				return base.Usage(fmt.Errorf("invalid --wait %v: must be positive", wait))
			}
			return a.Read(cmd.Context(), "slot cancel", func(ctx context.Context, r base.Reader) error {
				return cancelSlot(ctx, r, slot, wait)
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for a running slot to end")
	return cmd
}

// errStillRuns ends the wait for a slot that was asked to end.
var errStillRuns = errors.New("the slot still runs")

func cancelSlot(ctx context.Context, r base.Reader, slot job.Slot, wait time.Duration) error {
	waiting, stop := context.WithTimeoutCause(ctx, wait, errStillRuns)
	defer stop()
	var last control.Asked
	spoken := time.Now()
	record, err := r.Control().Cancel(waiting, slot, func(asked control.Asked) {
		// What takes a moment needs no words.
		if last = asked; time.Since(spoken) >= 2*time.Second {
			spoken = time.Now().Add(3 * time.Second)
			r.Log.Info(situation(asked), "slot", slot.ID(), "node", asked.Node)
		}
	})
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(context.Cause(waiting), errStillRuns):
		return base.Try(fmt.Errorf("slot %q still runs after %v: %s", slot.ID(), wait, situation(last)), "the same again, with a longer --wait")
	case err != nil:
		return ofSlot(ctx, r, slot, err)
	case record.State != job.Cancelled:
		return base.Try(fmt.Errorf("slot %q was not cancelled: it ended %s before", slot.ID(), record.State), "cronce slot show "+quoted(slot.ID()))
	}
	if r.Output == base.OutputJSON {
		return r.PrintJSON(struct {
			ID    string    `json:"id"`
			State job.State `json:"state"`
			Error string    `json:"error"`
		}{slot.ID(), record.State, record.Error})
	}
	_, err = fmt.Fprintf(r.Stdout, "%s is cancelled: %s\n", printable.Line(slot.ID()), base.Brief(record.Error, 200))
	return err
}

// situation says what a cancel waits for.
func situation(a control.Asked) string {
	switch {
	case a.Ending:
		return "its node has ended the handler's context, and the handler has not returned"
	case a.Silent:
		return fmt.Sprintf("its node does not answer; it is proved dead in %v if it stays silent", a.Wait.Round(time.Second))
	}
	return "its node has no handler to end; its outcome is being written"
}
