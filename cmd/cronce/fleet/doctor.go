package fleet

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/check/doctor"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

type doctorFlags struct {
	monitors []string
	reset    bool
	force    bool
	remove   bool
	yes      bool
}

func NewDoctorCommand(a *base.App) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems, present and coming, and how to fix them",
		Long: `Doctor inspects the broker, the stored data and the fleet, and changes nothing. Each
finding has what was seen, why it matters, and how to fix it:

  error    something does not work, or data is lost, now
  warning  something will fail, or cost slots, at the next incident
  note     useful to know; it does not change the status

The status is 3 if there are errors or warnings, 0 if there are none, and 1 if the
broker did not answer. For the outcomes of single slots, use "cronce verify".

A server reports only on its monitoring port whether it syncs its writes, so that a
power failure loses nothing. --monitor asks that port; give it once for each server of a
cluster. The server that cronce embeds always syncs.

--reset-watermark moves the watermark back if it is ahead of the broker's clock, because
the clock was wrong for a while, or ahead of the registry, because the registry was
created anew. In these states no slot is published. Correct the clocks first. A valid
watermark is not changed. A watermark ahead of the clock is moved back by the whole
horizon: slots in that range are offered again, and those that have a record do not run
again. Running nodes notice the change by themselves. --force also moves back any other
watermark by the horizon, such as one that a newer version wrote, if none runs any more.

--remove-unreadable removes records, locks and nodes that cannot be read, because they
block a slot or a whole job. It shows each and asks; --yes answers yes, and is required
without a terminal. A value that changed since it was shown stays. With --force it also
removes values that a newer version may have written; make sure that none runs. If a
slot's record was removed and its message still waits, the slot starts as if for the
first time. If a job's lock was removed, the job does not count its slots that run now.

With -o json, one line for each finding; about, why and mend may be absent:

  {"check":"worker","level":"warning","about":"queue mail","what":"3 slots wait, and no live node works on it",
   "why":"they wait, and expire","mend":"start a worker that handles them: cronce run --queue mail -f jobs.yaml"}

and a last line with the summary, the only line with ok. reset and removed are present if
something was reset or removed:

  {"ok":false,"server":"n1","version":"2.15.2","errors":0,"warnings":1,"notes":0,
   "reset":{"from":"2036-01-01T00:00:00Z","to":"2026-11-20T12:00:00Z"},
   "removed":[{"bucket":"cronce_state","key":"lock.report","revision":17,"why":"invalid lock: ..."}]}

Checks: ` + doctorChecks,
		Example: `  cronce doctor
  cronce doctor --monitor http://n1:8222 --monitor http://n2:8222 --monitor http://n3:8222
  cronce doctor -o json | jq -r 'select(.level == "error") | .mend'
  cronce doctor --reset-watermark
  cronce doctor --reset-watermark --force
  cronce doctor --remove-unreadable`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(f.check(), checkTerminal(a, f)); err != nil {
				return base.Try(base.Usage(err), "cronce doctor --help")
			}
			return a.WithJetStream(cmd.Context(), "doctor", base.ReadPatience, func(ctx context.Context, js jetstream.JetStream, alive func()) error {
				return runDoctor(ctx, a, f, doctor.Sources{JetStream: js, Namespace: a.Namespace, Monitors: f.monitors, Alive: alive, Full: storageFull(js.Conn())})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.monitors, "monitor", nil, "monitoring `URL` of a server, like http://n1:8222; repeatable")
	flags.BoolVar(&f.reset, "reset-watermark", false, "move back a watermark that is ahead of the clock or of the registry")
	flags.BoolVar(&f.force, "force", false, "with --reset-watermark: also move back a valid watermark or one of a newer version; with --remove-unreadable: also remove values that a newer version may have written")
	flags.BoolVar(&f.remove, "remove-unreadable", false, "show each unreadable record, lock and node, ask, and remove it")
	flags.BoolVar(&f.yes, "yes", false, "with --remove-unreadable: remove all without a question")
	base.Complete(cmd, "monitor")
	return cmd
}

const doctorChecks = `missing, settings, timers, layout, rollup, batches, orders, foreign, storage, full, replicas, replica,
sync, version, limit, max_payload, retention, lease, duplicates, clock, tzdata, node, domains, producer,
worker, consumer, unasked, paused, unused, fired, ack_pending, broken, future, handler, unregistered,
watermark, stuck, lock, unreadable, sweep, rewound, unread, alerts, intake, incomplete.`

func (f doctorFlags) check() error {
	if f.force && !f.reset && !f.remove {
		return errors.New("--force needs --reset-watermark or --remove-unreadable")
	}
	if f.yes && !f.remove {
		return errors.New("--yes needs --remove-unreadable")
	}
	return base.CheckMonitor("http://n1:8222", f.monitors...)
}

// doctorSummary is the last line of JSON.
type doctorSummary struct {
	OK       bool         `json:"ok"`
	Server   string       `json:"server"`
	Version  string       `json:"version"`
	Errors   int          `json:"errors"`
	Warnings int          `json:"warnings"`
	Notes    int          `json:"notes"`
	Reset    *doctorReset `json:"reset,omitempty"`
	Removed  []removed    `json:"removed,omitempty"`
}

type doctorReset struct {
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to"`
}

func runDoctor(ctx context.Context, a *base.App, f doctorFlags, from doctor.Sources) error {
	store, facts, err := doctor.Gather(ctx, from)
	if err != nil {
		return err
	}
	var reset *doctorReset
	if f.reset {
		if reset, err = resetWatermark(ctx, a, store, facts, f.force); err != nil {
			return err
		}
	}
	var gone []removed
	if f.remove {
		if gone, err = removeUnreadable(ctx, a, f, store, facts.Unreadable, from.Alive); err != nil {
			return err
		}
	}
	if reset != nil || len(gone) > 0 {
		if _, facts, err = doctor.Gather(ctx, from); err != nil {
			return err
		}
	}
	found := doctor.Check(facts)
	summary := doctorSummary{OK: !doctor.Counts(found), Server: facts.Survey.Server, Version: facts.Survey.Version, Reset: reset, Removed: gone}
	for _, x := range found {
		switch x.Level {
		case doctor.Error:
			summary.Errors++
		case doctor.Warning:
			summary.Warnings++
		default:
			summary.Notes++
		}
	}
	if err := printFindings(a, found, summary); err != nil || summary.OK {
		return err
	}
	return fmt.Errorf("%w: %s", base.ErrFound, summary.counts())
}

// resetWatermark returns nil, and logs why, if there was nothing to reset.
func resetWatermark(ctx context.Context, a *base.App, store *kv.Store, facts doctor.Facts, force bool) (*doctorReset, error) {
	done, err := doctor.ResetWatermark(ctx, store, facts, a.Operator(), rand.Text(), force)
	switch {
	case errors.Is(err, doctor.ErrRight):
		a.Log.Info(err.Error())
		return nil, nil //nolint:nilnil // nothing was done, and nothing failed
	case errors.Is(err, doctor.ErrNewer):
		return nil, base.Try(err, "cronce doctor --reset-watermark --force, if no newer version runs")
	case errors.Is(err, job.ErrConflict):
		return nil, base.Try(fmt.Errorf("%w: a producer moved it in the meantime, so it may be valid now", err), "cronce doctor")
	case errors.Is(err, job.ErrUnknown):
		return nil, base.Try(err, "cronce doctor, which shows whether it was reset")
	case err != nil:
		return nil, err
	}
	return &doctorReset{done.From.Time.UTC(), done.To.Time}, nil
}

func printFindings(a *base.App, found []doctor.Finding, summary doctorSummary) error {
	if a.Output == base.OutputJSON {
		rows := codec.Map(found, func(x doctor.Finding) any {
			return client.Finding{Check: x.Check, Level: client.FindingLevel(x.Level), About: x.About, What: x.What, Why: x.Why, Mend: x.Mend}
		})
		return base.PrintLines(a, slices.Values(append(rows, summary)))
	}
	out := bufio.NewWriter(a.Stdout)
	if r := summary.Reset; r != nil {
		from := "-"
		if !r.From.IsZero() {
			from = r.From.Format(time.RFC3339)
		}
		fmt.Fprintf(out, "the watermark was moved back from %s to %s\n\n", from, r.To.Format(time.RFC3339))
	}
	for _, r := range summary.Removed {
		fmt.Fprintf(out, "removed %s/%s at revision %d: %s\n\n", r.Bucket, printable.Clip(r.Key, base.WidestCell), r.Revision, printable.Clip(r.Why, 1000))
	}
	for _, x := range found {
		what := x.What
		if x.About != "" {
			what = x.About + ": " + what
		}
		fmt.Fprintf(out, "%-8s %s\n", x.Level, printable.Clip(what, 1000))
		for _, line := range [][2]string{{"why", x.Why}, {"mend", x.Mend}} {
			if line[1] != "" {
				fmt.Fprintf(out, "    %-4s %s\n", line[0], printable.Clip(line[1], 1000))
			}
		}
	}
	if len(found) > 0 {
		fmt.Fprintln(out)
	}
	verdict := "all is well"
	if !summary.OK {
		verdict = summary.counts()
	} else if summary.Notes > 0 {
		verdict += ", " + base.Plural(summary.Notes, "note")
	}
	fmt.Fprintf(out, "%s (nats-server %s on %s)\n", verdict, printable.Clip(summary.Version, base.WidestCell), printable.Clip(summary.Server, base.WidestCell))
	return out.Flush()
}

// counts formats the counts that are not zero: "1 error, 2 warnings".
func (s doctorSummary) counts() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Errors, "error"}, {s.Warnings, "warning"}, {s.Notes, "note"}} {
		if p.n > 0 {
			parts = append(parts, base.Plural(p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// storageFull returns a function that asks the embedded server why its storage is full. The
// server answers only if it is.
func storageFull(nc *nats.Conn) func(context.Context) string {
	return func(ctx context.Context) string {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		m, err := nc.RequestWithContext(ctx, embed.StorageSubject, nil)
		if err != nil {
			return ""
		}
		return string(m.Data)
	}
}

// removed is an unreadable value that was removed.
type removed struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Revision uint64 `json:"revision"`
	Why      string `json:"why"`
}

const removeFlag = "--remove-unreadable"

// checkTerminal returns an error if removeUnreadable would ask, and stdin is not a terminal.
func checkTerminal(a *base.App, f doctorFlags) error {
	if f.remove && !f.yes && !base.IsTerminal(a.Stdin) {
		return base.NoTerminal(removeFlag)
	}
	return nil
}

// removeUnreadable shows each value, asks unless --yes, and removes it at the revision
// that was shown.
func removeUnreadable(ctx context.Context, a *base.App, f doctorFlags, store *kv.Store, all []*kv.UnreadableError, alive func()) ([]removed, error) {
	answers := bufio.NewReader(a.Stdin)
	var gone []removed
	for _, e := range all {
		where := e.Bucket + "/" + printable.Clip(e.Key, base.WidestCell)
		if errors.Is(e, job.ErrVersion) && !f.force {
			a.Log.Warn("not removed: a newer version may have written it; if none runs, add --force", "key", where, "revision", e.Revision, "reason", base.OneLine(e.Err))
			continue
		}
		if !f.yes {
			yes, err := a.Confirm(ctx, answers, alive, removeFlag, fmt.Sprintf("%s, revision %d of %s, %d bytes\n  cannot be read: %s\nRemove it? [y/N] ",
				where, e.Revision, e.Time.UTC().Format(time.RFC3339), e.Size, printable.Clip(e.Err.Error(), 1000)))
			if err != nil {
				return gone, err
			}
			if !yes {
				continue
			}
		}
		err := store.RemoveUnreadable(ctx, e)
		alive()
		switch {
		case errors.Is(err, job.ErrConflict):
			a.Log.Warn("not removed: it has changed", "key", where, "revision", e.Revision)
		case errors.Is(err, job.ErrUnknown):
			return gone, base.Try(fmt.Errorf("remove %s: %w", where, err), "cronce doctor, which shows whether it was removed")
		case err != nil:
			return gone, fmt.Errorf("remove %s: %w", where, err)
		default:
			gone = append(gone, removed{e.Bucket, e.Key, e.Revision, e.Err.Error()})
		}
	}
	return gone, nil
}
