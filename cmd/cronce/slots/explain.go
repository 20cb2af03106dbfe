package slots

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

func newSlotExplainCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Explain what happened to a slot, or why there is none",
		Long: `Explain lists what happened to a slot, in order: when it was due, which nodes published
and ran it, how each attempt ended, which node was declared dead, which operator
reopened it, how late each step was, and its state now. If there is no such slot, it
gives the reason: the slot is not in the schedule, its job is unknown, removed or
paused, it is not due yet, it was left out, or it is too old. It also names the nearest
slots.

With -o json, one line; state is absent if there is no such slot; before and after are
then the nearest ones:

  {"id":"report:2026-11-21T07:00:00Z","state":"failed","why":"It ended failed: exit status 1 (all 3 attempts are spent).",
   "steps":[{"time":"2026-11-21T07:00:00Z","what":"due","text":"due"},
   {"time":"2026-11-21T07:00:00.005Z","after_due_ms":5,"what":"started","node":"web1-711-0kq1-x2","attempt":1,
   "fence":42,"text":"attempt 1 claimed and started by web1-711-0kq1-x2, fence 42"}]}

what is one of due, published, started, ended, next (in the future), reopened (by an
operator), an outcome, or the kind of an event (see cronce watch). peer is the node that
was declared dead, or that the slot was taken over from.`,
		Example: `  cronce slot explain report:2026-11-21T07:00:00Z
  cronce slot explain report:@order-4711`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onSlot(cmd, args, a.Open, func(ctx context.Context, r base.Session, slot job.Slot) error {
				story, err := r.Client().Explain(ctx, slot.ID())
				if err != nil {
					return err
				}
				if r.Output == base.OutputJSON {
					return r.PrintJSON(story)
				}
				return printStory(r, story)
			})
		},
	}
}

func printStory(r base.Session, s client.Story) error {
	fmt.Fprintf(r.Stdout, "%s: %s\n", printable.Line(s.ID), cmp.Or(string(s.State), "no record"))
	if len(s.Steps) > 0 {
		fmt.Fprintln(r.Stdout)
		w := base.NewTable(r.Stdout)
		for _, step := range s.Steps {
			late := ""
			if d := step.Time.Sub(s.Due); !s.Due.IsZero() && d > 0 {
				late = "+" + precise(d)
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", step.Time.Format("2006-01-02T15:04:05.000Z"), late, base.Brief(step.Text, 200))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.Stdout, "\n%s\n", printable.Clip(s.Why, 2000))
	if s.Before != "" {
		fmt.Fprintf(r.Stdout, "The slot before: %s\n", s.Before)
	}
	if s.After != "" {
		fmt.Fprintf(r.Stdout, "The slot after:  %s\n", s.After)
	}
	return nil
}
