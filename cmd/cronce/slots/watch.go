package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

type watchFlags struct {
	job    string
	kinds  []string
	output bool
	orders bool
}

func NewWatchCommand(a *base.App) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print events of the fleet as they happen",
		Long: `Watch prints the events of the fleet as they happen, until Ctrl-C. The broker keeps events
of most kinds for a while, so watch also prints those that happened while it was not
connected. Events of the other kinds (succeeded, retrying, progress, output) can be lost.
"cronce slot ls" shows what is recorded. Kinds:

  succeeded, retrying, failed   how an attempt, or with it the slot, ended
  missed, skipped, expired      the slot ended without a run
  cancelled                     by an operator, or the slot left its job's schedule
  fenced                        a node declared another node dead
  takeover                      a worker took over a dead node's slot
  refused                       an attempt ended after it had lost its claim
  alert                         something that needs an operator's attention
  progress                      how far a handler is, at most once a second
  output                        a part of a handler's output, while "cronce slot tail" asks
                                for it; only with --kind output
  ordered                       an operator gave an order: order says which, node is the operator

--follow-output also prints what the slots of the job write while they run, each line after
the slot's ID, and the recorded output of slots that ended within a second. It follows
slots that run now or later, up to 64 at once. See "cronce slot tail".

--orders prints the orders of operators: first the orders that the broker keeps, for
as long as it keeps records, then each new order.

With -o json, one line for each event, as it was published; absent values are omitted;
peer is the node that was declared dead, or whose slot was taken over:

  {"v":1,"kind":"failed","time":"2026-11-21T07:00:01.2Z","node":"web1-711-0kq1-x2",
   "id":"report:2026-11-21T07:00:00Z","job":"report","attempt":3,"fence":42,"error":"exit status 1"}`,
		Example: `  cronce watch
  cronce watch --job report --kind failed --kind retrying
  cronce watch --job report --follow-output
  cronce watch --orders
  cronce watch -o json | jq -r 'select(.kind == "failed") | .id'`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: base.Endless(func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.Open(cmd.Context(), "watch", func(ctx context.Context, r base.Session) error {
				stop := r.KeepWaiting("")
				defer stop()
				if f.output {
					return f.follow(ctx, r)
				}
				return f.events(ctx, r, r.Client(), func(e job.Event) error { return f.print(r, e) })
			})
		}),
	}
	cmd.Flags().StringVar(&f.job, "job", "", "print only events of this `job`")
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "print only events of this `kind`; repeatable")
	cmd.Flags().BoolVar(&f.output, "follow-output", false, "with --job: also print what the job's slots write, as they write it")
	cmd.Flags().BoolVar(&f.orders, "orders", false, "print only the orders of operators: first those that are kept")
	base.Complete(cmd, "kind", codec.Strings(exchange.Kinds()...)...)
	return cmd
}

func (f watchFlags) check() error {
	switch {
	case f.orders && len(f.kinds) > 0:
		return base.Usage(errors.New("--orders and --kind exclude each other"))
	case f.orders && f.output:
		return base.Usage(errors.New("--orders and --follow-output exclude each other"))
	}
	if f.output && f.job == "" {
		return base.Usage(errors.New("--follow-output needs --job: it follows the output of one job"))
	}
	if err := codec.ValidateJobFilter(f.job); err != nil {
		return base.Usage(err)
	}
	return base.OneOf("--kind", codec.Strings(exchange.Kinds()...), f.kinds...)
}

// events calls each with every event from now on, or with --orders from the first that is
// kept, until ctx ends.
func (f watchFlags) events(ctx context.Context, r base.Session, c *client.Client, each func(job.Event) error) (err error) {
	var after uint64
	if !f.orders {
		if after, err = c.LastSequence(ctx); err != nil {
			return err
		}
	}
	r.Log.Info("watching; Ctrl-C ends it", "namespace", r.Namespace)
	for e, err := range c.Events(ctx, client.EventFilter{Job: f.job, After: &after}) {
		switch {
		case exchange.IsUnreadable(err):
			r.Log.Warn("skipped an unreadable event", "error", err)
			continue
		case err == nil:
			err = each(e.Event)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// print prints the event if the flags select it.
func (f watchFlags) print(r base.Session, e job.Event) error {
	if !f.selects(e) {
		return nil
	}
	return r.Print(e, "%s\n", eventLine(e))
}

// selects reports whether the event is to be printed. Output is printed only with --kind output.
func (f watchFlags) selects(e job.Event) bool {
	switch {
	case f.orders:
		return e.Kind == job.EventOrdered
	case len(f.kinds) == 0:
		return e.Kind != job.EventOutput
	}
	return slices.Contains(f.kinds, string(e.Kind))
}

// eventLine formats an event for a terminal: local time, kind, slot and details.
func eventLine(e job.Event) string {
	line := fmt.Sprintf("%s  %-9s  ", e.Time.Local().Format(time.TimeOnly+".000"), printable.Clip(string(e.Kind), base.WidestCell))
	switch {
	case e.Kind == job.EventFenced:
		line += printable.Clip(e.Peer, base.WidestCell) + "  declared dead by " + printable.Clip(e.Node, base.WidestCell)
	default:
		line += printable.Line(e.ID)
		if e.Attempt > 0 {
			line += fmt.Sprintf("  attempt %d", e.Attempt)
		}
		line += "  " + printable.Clip(e.Node, base.WidestCell)
		if e.Peer != "" {
			line += "  from " + printable.Clip(e.Peer, base.WidestCell)
		}
	}
	switch {
	case e.Order != "":
		line += "  " + base.Brief(e.Order+" "+e.Job, 100)
	case e.Progress != nil:
		line += "  " + printable.Clip(progressText(e.Progress), 200)
	case e.Output != "":
		line += "  " + base.Brief(strings.TrimSpace(e.Output), 200)
	case e.Error != "":
		line += "  " + base.Brief(e.Error, 200)
	}
	return line
}
