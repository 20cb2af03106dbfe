package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

func newJobTriggerCommand(a *base.App) *cobra.Command {
	var key, when, payload string
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Run a job once, outside its plan: now or later",
		Long: `Run a job once, outside its plan: now, or with --at later. A paused job can be
triggered; what is paused is its plan.

The same --key of a job, given by anyone and as often as one likes, is one run for
as long as the ledger remembers it (cronce setup --retention): what was ordered
first stays as it is, its time and payload too. So a command that failed half-way
can be given again. Without --key each command is a run of its own, and prints the
key that was drawn.

A run that waits for its time is kept by the NATS server, which needs version 2.12
or newer for it. It goes to the queue that the job has now: after an edit of the
queue, give the same command again to move it.

When traces are exported (see cronce run), the run is of the trace that TRACEPARENT in
the environment names, if it does: a script that an exec action runs goes on with its own.

With -o json, one line. state is pending while the run waits; new says that this
command made it; moved_from is the queue it waited on before:

  {"id":"report:@invoice-7","job":"report","key":"invoice-7","state":"pending","new":true,"queue":"default",
   "due":"2026-11-22T07:00:00Z"}`,
		Example: `  cronce job trigger report
  cronce job trigger report --key invoice-7 --payload '{"invoice":7}'
  cronce job trigger report --key invoice-7 --at 2026-11-22T07:00:00Z
  cronce job trigger report --payload - < payload.json`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			order, err := newOrder(a, args[0], key, when, payload, cmd.Flags().Changed)
			if err != nil {
				return base.Usage(err)
			}
			return a.Publish(cmd.Context(), "job trigger", func(ctx context.Context, r base.Reader) error {
				return trigger(ctx, r, order)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&key, "key", "", "the run's `token`: at most 128 bytes, none of them a control character (default: random)")
	flags.StringVar(&when, "at", "", "run at this RFC 3339 `time` (default: now)")
	flags.StringVar(&payload, "payload", "", "what the handler gets, as `JSON`, @FILE for that of a file, or - for standard input (default: the job's own)")
	for _, flag := range []string{"key", "at", "payload"} {
		base.Complete(cmd, flag)
	}
	return cmd
}

// newOrder makes an order of the command line. An empty flag that was given is a
// mistake, like a variable of a script that is not set: it must not mean "none".
func newOrder(a *base.App, name, key, when, payload string, given func(flag string) bool) (control.Order, error) {
	o := control.Order{Job: name, Key: key}
	for flag, value := range map[string]string{"key": key, "at": when, "payload": payload} {
		if given(flag) && value == "" {
			return o, fmt.Errorf("invalid --%s: it is empty; leave it out for the default", flag)
		}
	}
	var err error
	if when != "" {
		if o.At, err = base.ParseTime("--at", when); err != nil {
			return o, err
		}
	}
	if o.Payload, err = readPayload(a, payload); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// readPayload is what --payload means: JSON, - for standard input, or @FILE, which no JSON
// begins with.
func readPayload(a *base.App, text string) (json.RawMessage, error) {
	from, source := a.Stdin, "standard input"
	if path, isFile := strings.CutPrefix(text, "@"); isFile {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("invalid --payload: %w", err)
		}
		defer f.Close()
		from, source = f, path
	} else if text != "-" {
		from, source = strings.NewReader(text), "the value"
	}
	// One byte more than may be shows that it is too much.
	data, err := io.ReadAll(io.LimitReader(from, job.MaxPayload+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(data) == 0 && text != "":
		return nil, fmt.Errorf("invalid --payload: %s is empty", source)
	case len(data) > job.MaxPayload:
		return nil, fmt.Errorf("invalid --payload: %s has more than %d KiB: store it elsewhere and pass its name", source, job.MaxPayload>>10)
	}
	return data, nil
}

type triggerRow struct {
	ID        string    `json:"id"`
	Job       string    `json:"job"`
	Key       string    `json:"key"`
	State     job.State `json:"state"`
	New       bool      `json:"new"`
	Queue     string    `json:"queue"`
	Due       time.Time `json:"due,omitzero"`
	MovedFrom string    `json:"moved_from,omitempty"`
}

func trigger(ctx context.Context, r base.Reader, o control.Order) error {
	o.Traceparent = tracing.Traceparent(ctx)
	t, err := r.Control().Trigger(ctx, o)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return base.Try(err, "the same without --at, when it is due")
	case errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) && o.Key == "":
		return base.Try(err, "cronce slot ls --job "+o.Job+": it may have been triggered")
	case err != nil:
		return r.OfJob(ctx, o.Job, err)
	}
	if r.Output == base.OutputJSON {
		return r.PrintJSON(triggerRow{t.Slot.ID(), t.Slot.Job, t.Slot.Token, t.State, t.New, t.Queue, t.Due.UTC(), t.MovedFrom})
	}
	_, err = fmt.Fprintln(r.Stdout, t.Slot.ID()+" "+triggered(r, t))
	return err
}

// triggered words what became of an order.
func triggered(r base.Reader, t control.Triggered) string {
	later := t.Due.After(r.Now())
	due := fmt.Sprintf("%s (%s)", t.Due.UTC().Format(time.RFC3339Nano), base.Relative(t.Due.Sub(r.Now())))
	switch {
	case t.MovedFrom != "":
		return fmt.Sprintf("was set already, and waits for %s: moved from queue %s to %s", due, t.MovedFrom, t.Queue)
	case t.New && later:
		return "is set for " + due
	case t.New:
		return "is triggered"
	case t.State == job.Pending && later:
		return fmt.Sprintf("was set already, and waits for %s: nothing was changed", due)
	case t.State == job.Pending:
		return "was triggered already, and waits: nothing was changed"
	}
	return fmt.Sprintf("was triggered already, and is %s: nothing was changed", t.State)
}
