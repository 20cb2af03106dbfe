package slots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

func newSlotWaitCommand(a *base.App) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a slot has its outcome",
		Long: `Wait waits until a slot has its outcome, and prints it. The status is 0 if the slot
succeeded, and 1 if it ended otherwise. You can wait for a slot that is planned and not
due yet, or that comes after slots of other jobs. If there is no such slot and none is to
come, wait says why, with status 1. It goes on while the server cannot be reached. Ctrl-C
ends only the waiting, with status 130.

With -o json, one line, as "slot show" prints it:

  {"id":"report:2026-11-21T07:00:00Z","job":"report","state":"succeeded","attempt":1,...}`,
		Example: `  cronce slot wait report:2026-11-21T07:00:00Z || echo "the report failed"
  cronce slot wait report:@invoice-7 --timeout 10m -o json`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && timeout <= 0 {
				return base.Usage(fmt.Errorf("invalid --timeout %v: must be positive; leave it out for no limit", timeout))
			}
			return onSlot(cmd, args, a.Open, func(ctx context.Context, r base.Session, slot job.Slot) error {
				if timeout > 0 {
					var stop func()
					ctx, stop = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no outcome after %v", timeout))
					defer stop()
				}
				warnIfUnseen(ctx, r, slot)
				c := r.Client()
				return Await(ctx, r, slot, func(ctx context.Context) (client.SlotDetails, error) { return c.Wait(ctx, slot.ID()) })
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: no limit)")
	return cmd
}

// warnIfUnseen warns that the login cannot see whether the slot exists. That of a caller reads records, and
// not what waits.
func warnIfUnseen(ctx context.Context, r base.Session, slot job.Slot) {
	if r.MayList() {
		return
	}
	if _, _, err := r.Ledger().Read(ctx, slot); errors.Is(err, job.ErrNotFound) {
		r.Log.Warn("this login may not see which slots wait: if there is no such slot, only --timeout ends the wait", "slot", slot.ID())
	}
}

// Await calls wait, which returns the slot with its outcome, and prints the outcome. It returns an
// error if the slot did not succeed.
func Await(ctx context.Context, r base.Session, slot job.Slot, wait func(context.Context) (client.SlotDetails, error)) error {
	stop := r.KeepWaiting("still waiting for the outcome", "slot", slot.ID())
	defer stop()
	d, err := wait(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		if errors.Is(context.Cause(ctx), context.Canceled) { // a signal, and not --timeout
			err = fmt.Errorf("wait for slot %q: %w", slot.ID(), base.ErrInterrupted)
		}
		if d.State != "" {
			err = fmt.Errorf("%w; it is %s", err, d.State)
		}
		return base.Try(err, "cronce slot explain "+quoted(slot.ID()))
	case err != nil:
		return slotError(ctx, r, slot, err)
	}
	if err := r.Print(d, "%s %s%s\n", printable.Line(d.ID), d.State, lastAttempt(d.SlotRow)); err != nil || d.State == job.Succeeded {
		return err
	}
	why := errors.New(string(d.State))
	if d.Error != "" {
		why = fmt.Errorf("%s: %s", d.State, base.Brief(d.Error, 200))
	}
	return base.Try(fmt.Errorf("slot %q %w", d.ID, why), "cronce slot show "+quoted(d.ID))
}

// lastAttempt describes how long the last attempt of a slot took, and its number: " in 3s at
// attempt 2".
func lastAttempt(s client.SlotRow) string {
	if s.Started.IsZero() || s.Finished.IsZero() {
		return ""
	}
	text := " in " + base.Span(max(0, s.Finished.Sub(s.Started)))
	if s.Attempt > 1 {
		text += fmt.Sprintf(" at attempt %d", s.Attempt)
	}
	return text
}

func newSlotTailCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "tail ID",
		Short: "Follow the output of a slot until it has its outcome",
		Long: `Tail prints what a slot writes while it runs, beginning with what it has written so far,
and at the end the outcome. It goes on through retries, logs why each attempt failed, and
waits for a slot that does not run yet or is still to come, as "slot wait" does. For a
slot that has ended, it prints the recorded output. The status is 0 if the slot
succeeded, and 1 if it ended otherwise. Ctrl-C ends only the printing, with status 130.

The output of Go handlers, of commands (stdout and stderr) and of services is not stored
while it is written: a node sends it only while it is asked to, at most 64 KiB a second.
Tail says how many bytes it skipped, and prints the end of each attempt's output from the
record if that was not sent. Control characters are escaped.

With -o json, a line for each piece, and the line of "slot show" at the end:

  {"attempt":1,"node":"web1-711-0kq1-x2","output":"1 of 7\n"}
  {"attempt":1,"node":"web1-711-0kq1-x2","output":"6 of 7\n","skipped":700}
  {"attempt":1,"node":"web1-711-0kq1-x2","error":"exit status 1"}`,
		Example: "  cronce slot tail report:2026-11-21T07:00:00Z",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onSlot(cmd, args, a.Open, func(ctx context.Context, r base.Session, slot job.Slot) error {
				t := tailPrinter{Session: r, slot: slot}
				return Await(ctx, r, slot, t.tail)
			})
		},
	}
}

// tailPrinter prints the pieces of a slot's output.
type tailPrinter struct {
	base.Session
	slot    job.Slot
	attempt int
	open    bool // the last line has no end yet
}

// tail prints the pieces, and returns the slot with its outcome.
func (t *tailPrinter) tail(ctx context.Context) (d client.SlotDetails, err error) {
	for p, failed := range t.Client().Tail(ctx, t.slot.ID()) {
		switch {
		case failed != nil:
			err = failed
		case p.Outcome != nil:
			d = *p.Outcome
		default:
			err = t.print(p)
		}
		if err != nil {
			break
		}
	}
	if ended := t.endLine(); err == nil {
		err = ended
	}
	return d, err
}

func (t *tailPrinter) print(p client.TailPiece) error {
	if p.Problem != nil {
		t.Log.Warn(cannotFollow, "slot", t.slot.ID(), "node", p.Node, "error", p.Problem)
		return nil
	}
	if t.Output == base.OutputJSON {
		return t.PrintJSON(p)
	}
	if p.Attempt != t.attempt {
		if t.attempt > 0 {
			if err := t.endLine(); err != nil {
				return err
			}
		}
		t.attempt = p.Attempt
		t.Log.Info("output of an attempt", "slot", t.slot.ID(), "attempt", p.Attempt, "node", p.Node)
	}
	if p.Skipped > 0 {
		if err := t.endLine(); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(t.Stdout, "... (%d bytes skipped) ...\n", p.Skipped); err != nil {
			return err
		}
	}
	if p.Error != "" {
		err := t.endLine()
		t.Log.Warn("the attempt failed", "slot", t.slot.ID(), "attempt", p.Attempt, "node", p.Node, "error", base.Brief(p.Error, 1000))
		return err
	}
	if p.Output == "" {
		return nil
	}
	t.open = !strings.HasSuffix(p.Output, "\n")
	_, err := fmt.Fprint(t.Stdout, printable.Text(p.Output))
	return err
}

func (t *tailPrinter) endLine() error {
	if !t.open {
		return nil
	}
	t.open = false
	_, err := fmt.Fprintln(t.Stdout)
	return err
}
