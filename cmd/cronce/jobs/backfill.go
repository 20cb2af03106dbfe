package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func newJobBackfillCommand(a *base.App) *cobra.Command {
	var from, to base.Time
	var clip bool
	perSecond := rate(client.DefaultRate)
	cmd := &cobra.Command{
		Use:   "backfill NAME --from TIME [--to TIME]",
		Short: "Run the slots of a past range that have no record",
		Long: `Backfill publishes the slots of a job in a past range that have no record, oldest
first: for example slots that one record counts as missed, or slots that were lost with
a broker's disk. It uses the schedules that the job had at the time. A deadline counts
from now.

Slots keep their IDs, so none runs twice. A slot that has a record stays as it is, and
a pending slot is not published again. After a Ctrl-C, a crash or a failure, repeat the
command to continue. A slot with a record of its own is final, even if it was missed or
skipped; cronce slot retry reopens it. Slots from before the job was first defined are
not in any of its schedules.

Workers do not run a slot older than the horizon (cronce setup --horizon). If the range
has such slots, backfill fails and publishes nothing; --clip leaves them out.

With -o json, one line; recorded counts the slots that had a record, by state; folded
counts the slots that turned out to be in the stream already:

  {"job":"report","from":"2026-11-20T12:00:00Z","to":"2026-11-21T12:00:00Z","slots":24,"published":20,
   "recorded":{"missed":1,"succeeded":2},"waiting":1,"folded":0,"too_old":0}`,
		Example: `  cronce job backfill report --from 2026-11-20T12:00:00Z
  cronce job backfill report --from 2026-11-20T12:00:00Z --to 2026-11-21T00:00:00Z --rate 10/s`,
		Args: base.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from.IsZero() {
				return base.Try(base.Usage(errors.New("--from is missing")), cmd.CommandPath()+" --help")
			}
			b := client.BackfillOptions{From: from.Time, To: to.Time, Rate: int(perSecond), Clip: clip}
			if err := cmp.Or(codec.ValidateName("job", args[0]), b.Validate()); err != nil {
				return base.Usage(err)
			}
			return a.OpenTraced(cmd.Context(), "job backfill", func(ctx context.Context, r base.Session) error {
				return backfill(ctx, r, args[0], b)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&from, "from", "publish slots from this RFC 3339 `time` on")
	flags.Var(&to, "to", "publish slots before this RFC 3339 `time` (default: now, by the broker's clock)")
	flags.Var(&perSecond, "rate", "publish at most `N/s`, up to "+strconv.Itoa(client.MaxRate))
	flags.BoolVar(&clip, "clip", false, "leave out slots that are older than the horizon")
	for _, flag := range []string{"from", "to", "rate"} {
		base.Complete(cmd, flag)
	}
	return cmd
}

// rate is a flag's value: a number per second.
type rate int

func (r *rate) String() string { return strconv.Itoa(int(*r)) + "/s" }
func (*rate) Type() string     { return "N/s" }

func (r *rate) Set(text string) error {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "/s"), 10, 31)
	if err != nil || n < 1 || n > client.MaxRate {
		return fmt.Errorf("want a rate like 10/s, from 1/s to %d/s", client.MaxRate)
	}
	*r = rate(n)
	return nil
}

func backfill(ctx context.Context, r base.Session, name string, b client.BackfillOptions) error {
	progress := meter(r.App, "backfill "+name)
	done, err := r.Client().Backfill(ctx, name, b, func(sum client.Backfilled) { progress(sum.Done(), sum.Slots) })
	r.StatusLine("")
	var old *client.TooOldError
	var broken *plans.EntryError
	switch {
	case errors.As(err, &broken): // it wraps job.ErrInvalid too, but the command is right
		return r.JobError(ctx, name, err)
	case errors.As(err, &old):
		return base.Try(err, "--clip to leave them out, or first a longer cronce setup --horizon")
	case errors.Is(err, job.ErrInvalid):
		return base.Usage(err)
	case err != nil && done.Done() > 0:
		why := err
		if errors.Is(err, context.Canceled) {
			why = errors.New("interrupted")
		}
		return base.Try(fmt.Errorf("%w after %d of %d slots, of which %d were published", why, done.Done(), done.Slots, done.Published),
			"the same command again, which continues")
	case err != nil:
		return r.JobError(ctx, name, err)
	}
	return r.Print(row.Backfill{Job: name, Backfilled: done}, "%s has %s from %s to %s\n%s", name, base.Plural(done.Slots, "slot"),
		done.From.Format(time.RFC3339), done.To.Format(time.RFC3339), backfilled(done))
}

// backfilled describes the results, one line for each kind.
func backfilled(b client.Backfilled) string {
	var lines strings.Builder
	line := func(n int, what string) {
		if n > 0 {
			fmt.Fprintf(&lines, "  %d %s\n", n, what)
		}
	}
	line(b.Published, "published")
	for _, state := range slices.Sorted(maps.Keys(b.Recorded)) {
		what := "already " + string(state)
		switch state {
		case job.Succeeded, job.Running, job.Retrying:
		default:
			what += ", which is final: cronce slot retry ID reopens one"
		}
		line(b.Recorded[state], what)
	}
	line(b.Waiting, "already pending")
	line(b.Folded, "already in the stream, now or recently: folded by the server")
	line(b.TooOld, "older than the horizon: left out")
	return lines.String()
}

// meter returns a function that shows the progress of a long command: on a terminal as a line that
// changes, else as a log line every few seconds.
func meter(a *base.App, what string) (progress func(done, all int)) {
	every := 5 * time.Second
	if a.Terminal() {
		every = 100 * time.Millisecond
	}
	last := time.Now()
	return func(done, all int) {
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		if !a.StatusLine(fmt.Sprintf("%s: %d of %d", what, done, all)) {
			a.Log.Info(what, "done", done, "of", all)
		}
	}
}
