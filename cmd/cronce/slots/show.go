package slots

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

func newSlotShowCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show everything that is recorded about one slot",
		Long: `Show prints everything that is recorded about one slot: each attempt with its node, times,
error and output, and the result that the handler set. If the slot runs, it also asks the
node for the progress and the output so far. Control characters are escaped. For the
same in order of time, use "cronce slot explain"; to follow the output, "cronce slot tail".

With -o json, the line of "slot ls", and:

  {...,"publisher":"web1-711-0kq1-x2","job_revision":7,"max_attempts":3,"retry_at":"2026-11-21T07:01:00Z",
   "attempts":[{"attempt":1,"node":"web1-711-0kq1-x2","fence":42,"started":"2026-11-21T07:00:00.005Z",
   "finished":"2026-11-21T07:00:01.2Z","error":"exit status 1","output":"1 of 7\n"}],
   "result":{"rows":7},
   "live":{"attempt":1,"fence":42,"progress":{"done":3,"total":7,"text":"orders",
   "time":"2026-11-21T07:00:03Z"},"output":"1 of 7\n","written":7}}

The output of the last attempt is that of the slot. live is present while the slot runs and
its node answers. A result that was too large for the server has only its size, as
result_dropped. A slot of a range of missed slots has no record: the range is shown.`,
		Example: "  cronce slot show report:2026-11-21T07:00:00Z",
		Args:    base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onSlot(cmd, args, a.Open, func(ctx context.Context, r base.Session, slot job.Slot) error {
				d, err := r.Client().Slot(ctx, slot.ID())
				if err != nil {
					return slotError(ctx, r, slot, err)
				}
				shown := slotDetail{SlotDetails: d}
				if d.State == job.Running {
					shown.askNode(ctx, r)
				}
				if r.Output == base.OutputJSON {
					return r.PrintJSON(shown)
				}
				return shown.print(r)
			})
		},
	}
}

// slotDetail is a slot with its history.
type slotDetail struct {
	client.SlotDetails
	Live *client.RunningAttempt `json:"live,omitempty"`
}

// askNode asks the node of a running slot for what it has reported. Without an answer, only the
// record is shown.
func (d *slotDetail) askNode(ctx context.Context, r base.Session) {
	switch live, err := r.Client().Running(ctx, d.ID); {
	case err != nil:
		r.Log.Warn("progress and output are not known", "slot", d.ID, "node", d.Node, "error", err)
	case live.Attempt > 0:
		d.Live = &live
	}
}

func (d slotDetail) print(r base.Session) error {
	w := base.NewTable(r.Stdout)
	fmt.Fprintf(w, "%s\t%s\n", printable.Line(d.ID), d.State)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, printable.Clip(value, base.WidestCell))
		}
	}
	line("queue", d.Queue)
	if d.JobRevision > 0 {
		line("definition", "revision "+strconv.FormatUint(d.JobRevision, 10))
	}
	line("due", d.lateness(d.Due))
	switch published := d.lateness(d.Published); {
	case d.Publisher == "":
		line("published", published)
	case published == "":
		line("ordered by", d.Publisher) // the NATS server publishes it when it is due
	default:
		line("published", published+" by "+d.Publisher)
	}
	if d.Shadow {
		line("shadow", "the job's action did not run")
	}
	if d.MaxAttempts > 0 {
		line("attempts", fmt.Sprintf("%d of %d", d.Attempt, d.MaxAttempts))
	}
	if d.Count > 0 {
		line("slots", fmt.Sprintf("%d, the last one %s", d.Count, d.Last.Format(time.RFC3339)))
	}
	line("next attempt", d.lateness(d.RetryAt))
	line("ended", d.lateness(d.Finished))
	if d.State == job.Running {
		line("runs on", d.Node)
	} else {
		line("recorded by", d.Node)
	}
	if d.Live != nil {
		line("progress", progressText(d.Live.Progress))
	}
	line("reason", base.Brief(d.Error, 300))
	if d.ResultDropped > 0 {
		line("result", fmt.Sprintf("dropped: its %d bytes were too many for the server's max_payload", d.ResultDropped))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	d.printAttempts(r)
	if d.Live != nil {
		block(r, "output so far", d.Live.Output)
	}
	block(r, "output of the last attempt", d.Output)
	block(r, "result", string(d.Result))
	return nil
}

func (d slotDetail) printAttempts(r base.Session) {
	if len(d.Attempts) == 0 {
		return
	}
	w := base.NewTable(r.Stdout)
	fmt.Fprintln(w, "\nATTEMPT\tSTARTED\tTOOK\tFENCE\tNODE\tERROR")
	for _, a := range d.Attempts {
		took, fence := "-", a.Fence
		if !a.Finished.IsZero() {
			took = precise(a.Finished.Sub(a.Started))
		} else if d.State == job.Running {
			took, fence = "runs", d.Fence
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\n", a.Number, d.lateness(a.Started), took, fence, printable.Clip(a.Node, base.WidestCell), cmp.Or(base.Brief(a.Error, 120), "-"))
	}
	_ = w.Flush() // a later write returns the same error
	for _, a := range d.Attempts {
		if strings.TrimSpace(a.Error) != base.Brief(a.Error, 120) {
			block(r, fmt.Sprintf("error of attempt %d", a.Number), a.Error)
		}
		block(r, fmt.Sprintf("output of attempt %d", a.Number), a.Output)
	}
}

// progressText formats a handler's progress: "3 of 7 (42%): orders".
func progressText(p *job.Progress) string {
	if p == nil {
		return ""
	}
	text := strconv.Itoa(p.Done)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %d (%d%%)", p.Total, int(100*float64(p.Done)/float64(p.Total)))
	}
	if p.Text != "" {
		text += ": " + p.Text
	}
	return text
}

// block prints text that a handler wrote, line by line, under a heading.
func block(r base.Session, heading, text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	fmt.Fprintf(r.Stdout, "\n%s:\n", heading)
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(r.Stdout, "  %s\n", printable.Text(line))
	}
}

// lateness formats an instant and its distance from the due time.
func (d slotDetail) lateness(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	text := t.UTC().Format("2006-01-02T15:04:05.000Z")
	if late := t.Sub(d.Due); !d.Due.IsZero() && late > 0 {
		text += " (+" + precise(late) + ")"
	}
	return text
}

// precise formats a duration, to the millisecond or finer if it is under a minute.
func precise(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(time.Millisecond).String()
	}
	return base.Span(d)
}

// quoted quotes an ID for a shell. Control characters are written as $'...' escapes.
func quoted(id string) string {
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:.@=,/+") == "" {
		return id
	}
	if strings.ContainsFunc(id, printable.Hidden) {
		return "$'" + printable.Text(strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(id)) + "'"
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
}
