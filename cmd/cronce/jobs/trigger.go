package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/slots"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/plain"
	"github.com/cronce-io/cronce/job"
)

func newJobTriggerCommand(a *base.App) *cobra.Command {
	var key, payload string
	var when base.Time
	var wait bool
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Run a job once, outside its schedule: now or later",
		Long: `Trigger runs a job once, outside its schedule: now, or later with --at. You can
trigger a paused job, because a pause stops only its schedule.

All triggers of a job with the same --key are one run, for as long as the ledger keeps
its record (cronce setup --retention). The first trigger decides the time and the
payload; later ones change neither. So you can repeat a command that failed half-way.
Without --key each command starts a run of its own, and prints the random key that it
chose.

The NATS server keeps a run until it is due, which needs version 2.12 or newer. The
run goes to the queue that the job has now: if you change the queue later, repeat the
command to move the run. A run whose time has come moves only after the duplicate
window, two minutes by default.

With --wait the command waits for the outcome, as "cronce slot wait" does, and prints it
after the line of the run. The status is 0 if the run succeeded, and 1 if it ended
otherwise. Ctrl-C ends the waiting, but not the run, with status 130.

If traces are exported (see cronce run), the run joins the trace that TRACEPARENT in
the environment names. So a script that an exec action runs continues its own trace.

With -o json, one line. state is pending while the run waits; new says that this
command created it; moved_from is the queue that it waited in before:

  {"id":"report:@invoice-7","job":"report","key":"invoice-7","state":"pending","new":true,"queue":"default",
   "due":"2026-11-22T07:00:00Z"}`,
		Example: `  cronce job trigger report
  cronce job trigger report --key invoice-7 --payload '{"invoice":7}'
  cronce job trigger report --key invoice-7 --at 2026-11-22T07:00:00Z
  cronce job trigger report --payload - < payload.json
  cronce job trigger report --wait || echo "the report failed"`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			order, err := base.ReadUntil(cmd.Context(), func() (client.TriggerOptions, error) {
				return newOrder(a, args[0], key, when, payload)
			})
			if err != nil {
				return base.Usage(err)
			}
			return a.OpenTraced(cmd.Context(), "job trigger", func(ctx context.Context, r base.Session) error {
				return trigger(ctx, r, args[0], order, wait)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&key, "key", "", "the run's `token`: at most 128 bytes, without control characters (default: random)")
	flags.Var(&when, "at", "run at this RFC 3339 `time` (default: now)")
	flags.StringVar(&payload, "payload", "", "payload for the handler: `JSON`, @FILE to read a file, or - to read standard input (default: the job's own)")
	flags.BoolVar(&wait, "wait", false, "wait for the outcome; the status is 1 unless the run succeeded")
	for _, flag := range []string{"key", "at", "payload"} {
		base.Complete(cmd, flag)
	}
	return cmd
}

func newOrder(a *base.App, name, key string, when base.Time, payload string) (o client.TriggerOptions, err error) {
	o.Key, o.At = key, when.Time
	if o.Payload, err = readPayload(a, payload); err != nil {
		return o, err
	}
	return o, cmp.Or(codec.ValidateName("job", name), o.Validate())
}

// readPayload reads the value of --payload: JSON, - for standard input, or @FILE. No JSON
// begins with @.
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
	// Text in UTF-16 has two bytes for each character. One byte more is enough to detect that the limit is
	// exceeded.
	data, err := io.ReadAll(io.LimitReader(from, 2*job.MaxPayload+1))
	if err == nil {
		data, err = plain.Unmarked(data)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(data) == 0 && text != "":
		return nil, fmt.Errorf("invalid --payload: %s is empty", source)
	case len(data) > job.MaxPayload:
		return nil, fmt.Errorf("invalid --payload: %s is larger than %d KiB: store it elsewhere and pass its name", source, job.MaxPayload>>10)
	}
	return data, nil
}

func trigger(ctx context.Context, r base.Session, name string, o client.TriggerOptions, wait bool) error {
	t, err := r.Client().Trigger(ctx, name, o)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return base.Try(err, "the same command without --at, at that time")
	case errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) && o.Key == "":
		return base.Try(err, "cronce slot ls --job "+name+": the job may have been triggered")
	case err != nil:
		return r.JobError(ctx, name, err)
	}
	if err := r.Print(row.Triggered(t), "%s %s\n", t.Slot.ID(), triggered(r, t)); err != nil || !wait {
		return err
	}
	return slots.Await(ctx, r, t.Slot, t.Wait)
}

func triggered(r base.Session, t client.Run) string {
	later := t.Due.After(r.Now())
	due := fmt.Sprintf("%s (%s)", t.Due.UTC().Format(time.RFC3339Nano), base.Relative(t.Due, r.Now()))
	switch {
	case t.MovedFrom != "":
		return fmt.Sprintf("was already scheduled for %s: moved from queue %s to %s", due, t.MovedFrom, t.Queue)
	case t.New && later:
		return "is scheduled for " + due
	case t.New:
		return "is triggered"
	case t.State == job.Pending && later:
		return fmt.Sprintf("was already scheduled for %s: nothing changed", due)
	case t.State == job.Pending:
		return "was already triggered and is pending: nothing changed"
	}
	return fmt.Sprintf("was already triggered, state %s: nothing changed", t.State)
}
