package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

type verifyFlags struct {
	from, to base.Time
	jobs     []string
	repair   bool
	against  againstFlags
}

func NewVerifyCommand(a *base.App) *cobra.Command {
	f := verifyFlags{against: againstFlags{tolerance: base.Duration(time.Minute)}}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that every slot has exactly one outcome",
		Long: `Verify computes which slots should exist, from the job definitions over time, and
compares them with the ledger. If it finds problems, the status is 3:

  missing     no record, no message, and no range of missed slots covers it
  no_outcome  it cannot proceed (its message is gone, and no live worker runs it), or
              it should have proceeded more than 2m ago
  doubled     attempts overlap, an attempt started after a success, or an event
              reports another outcome than the ledger
  early       it started before it was due, by its worker's clock or the broker's

If a job comes after other jobs, it should have a slot wherever all of those succeeded
more than 2m ago.

Late starts are only counted. Verify does not judge what it cannot know, and lists it:
slots that fell due less than 5s ago, slots that the ledger may have forgotten, slots
due while their job is paused, jobs that are not in the registry, and the time before
the first known schedule of a job. The end of the range may be in the future: then it
judges up to now, and says so. It also reports if nodes found that the ledger went
back, because it was purged or restored from an older copy. The slots that ran before
that are then not known.

--repair offers missing slots again, and slots that have neither an outcome nor a
message. Workers treat them like any other slot, by their record: a slot that lost its
record runs again. If the job's catch_up policy is none, or its within has passed, the
slot is recorded as missed. Slots that are older than the horizon, or not published yet,
are left alone. The status is still 3: verify again to see the results. Several
processes may repair at once: within the duplicate window the server folds the copies.

With -o json, one line for each slot with a problem. state is the state of its record,
or pending; repair is offered or already_offered; beyond_repair is why it is neither:

  {"problem":"missing","id":"report:2026-11-21T07:00:00Z","job":"report","slot":"2026-11-21T07:00:00Z",
   "due":"2026-11-21T07:00:00Z","detail":"neither a record nor a message","repair":"offered"}
  {"problem":"no_outcome","id":"report:2026-11-21T08:00:00Z","job":"report","slot":"2026-11-21T08:00:00Z",
   "due":"2026-11-21T08:00:00Z","state":"pending","detail":"it has been waiting for more than 2m0s, ...",
   "beyond_repair":"its message waits: ..."}

and a last line with the summary, the only line with ok. slots counts the slots that should
exist and were judged; beside counts the outcomes of slots that are in no schedule
(triggered, backfilled, of deleted jobs). late_ms is from due to start; each bucket
counts up to le_ms and above the bucket before; the last has no bound:

  {"ok":false,"from":"2026-11-20T12:00:00Z","to":"2026-11-21T12:00:00Z","jobs":1,"slots":24,
   "outcomes":{"succeeded":22},"in_progress":0,"beside":0,"missing":1,"no_outcome":1,"doubled":0,"early":0,
   "offered":1,"beyond_repair":1,"late_ms":{"slots":22,"p50":12.3,"p99":40.2,"max":41.5,
   "buckets":[{"le_ms":10,"slots":3},{"le_ms":50,"slots":19},...,{"slots":0}]},
   "not_judged":[{"reason":"what falls due while it is paused","jobs":1,"names":["backup"]}]}

If the ledger went back, the summary has "rewound":{"time":...,"lost":{"slot":...,"revision":...,"time":...},"found":...}.

` + againstHelp,
		Example: `  cronce verify
  cronce verify --from 2026-11-14T00:00:00Z --to 2026-11-21T00:00:00Z --job report
  cronce verify -o json | jq -r 'select(.problem == "missing") | .id'
  cronce verify --repair
  cronce verify --against /var/log/syslog -f imported.yaml
  journalctl -u 'backup*.service' --since -7d -o short-iso | cronce verify --against - -f imported.yaml`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(f.check(), f.against.check(cmd, f)); err != nil {
				return base.Try(base.Usage(err), "cronce verify --help")
			}
			if f.against.log != "" {
				return verifyAgainst(cmd.Context(), a, f)
			}
			open := a.Open
			if f.repair {
				open = a.OpenTraced
			}
			return open(cmd.Context(), "verify", func(ctx context.Context, r base.Session) error {
				r.LogProgress("still verifying")
				v := verifier{Session: r, flags: f}
				return v.run(ctx)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&f.from, "from", "judge slots from this RFC 3339 `time` on (default 24h before --to)")
	flags.Var(&f.to, "to", "judge slots before this RFC 3339 `time` (default: now, by the broker's clock)")
	flags.StringSliceVar(&f.jobs, "job", nil, "judge only this `job`; repeatable")
	flags.BoolVar(&f.repair, "repair", false, "offer missing and stuck slots again")
	f.against.add(flags)
	return cmd
}

func (f verifyFlags) check() error {
	if !f.from.IsZero() && !f.to.IsZero() && !f.to.After(f.from.Time) {
		return fmt.Errorf("invalid --to %s: must be after --from %s", &f.to, &f.from)
	}
	return codec.ValidateName("job", f.jobs...)
}

// verifier is one run of the command.
type verifier struct {
	base.Session
	flags verifyFlags

	// problems are the first ones for text output, and those not printed yet for JSON.
	problems []client.SlotProblem
}

func (v *verifier) run(ctx context.Context) error {
	sum, err := v.Client().Verify(ctx, client.VerifyOptions{
		From: v.flags.from.Time, To: v.flags.to.Time, Jobs: v.flags.jobs, Repair: v.flags.repair,
		Unreadable: func(err error) { v.SkipUnreadable(err) },
	}, v.found)
	var future *client.FutureError
	judged := !sum.To.IsZero()
	switch {
	case errors.As(err, &future):
		return base.Usage(err)
	case !judged && len(v.flags.jobs) > 0 && errors.Is(err, job.ErrNotFound):
		return base.Try(err, "cronce job ls")
	case !judged:
		return err
	}
	return v.print(sum, err)
}

// found keeps a problem. With -o json it prints problems in large pieces, because there may be
// many.
func (v *verifier) found(p client.SlotProblem) error {
	const atOnce = 1024
	text := v.Output == base.OutputText
	if !text || len(v.problems) < mostShown {
		v.problems = append(v.problems, p)
	}
	if text || len(v.problems) < atOnce {
		return nil
	}
	return v.flush()
}

// flush prints problems as JSON.
func (v *verifier) flush() error {
	err := base.PrintLines(v.App, slices.Values(v.problems))
	v.problems = v.problems[:0]
	return err
}

// mostShown limits the problems in text output. JSON has all.
const mostShown = 20

// print prints the problems and the summary. err is the error that ended a repair.
func (v *verifier) print(sum client.Verification, err error) error {
	text := v.Output == base.OutputText
	begin := v.flush // also what was offered before a failure
	if text {
		begin = func() error { return v.printReport(sum) }
	}
	switch err = cmp.Or(err, begin()); {
	case err != nil:
	case text:
		err = v.printProblems(sum)
	default:
		err = v.PrintJSON(sum)
	}
	if err != nil || sum.OK {
		return err
	}
	return fmt.Errorf("%w: %s", base.ErrFound, wrongs(sum))
}

func problemCells(p client.SlotProblem) []string {
	return []string{string(p.Problem), p.ID, cmp.Or(string(p.State), "-"), p.Detail, cmp.Or(p.BeyondRepair, string(p.Repair), "-")}
}

func (v *verifier) printReport(r client.Verification) error {
	verdict := "all is well"
	if unsuccessful := r.Outcomes[job.Failed] + r.Outcomes[job.Expired] + r.Outcomes[job.Missed]; !r.OK {
		verdict = wrongs(r)
	} else if unsuccessful > 0 {
		verdict = fmt.Sprintf("every slot is accounted for, and %s did not succeed: see the outcomes", base.Plural(unsuccessful, "slot"))
	}
	w := base.NewTable(v.Stdout)
	fmt.Fprintf(w, "verdict\t%s\n", verdict)
	fmt.Fprintf(w, "slots\t%d of %d jobs, from %s to %s\n", r.Slots, r.Jobs, r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339))
	fmt.Fprintf(w, "outcomes\t%s\n", cmp.Or(outcomes(r), "-"))
	if r.Rewound != nil {
		fmt.Fprintf(w, "went back\t%s\n", wentBack(*r.Rewound))
	}
	if r.InProgress > 0 {
		fmt.Fprintf(w, "in progress\t%d\n", r.InProgress)
	}
	if r.Beside > 0 {
		fmt.Fprintf(w, "beside\t%d of these are in no schedule: triggered, backfilled, or of a job that is not judged\n", r.Beside)
	}
	if l := r.Late; l.Slots > 0 {
		fmt.Fprintf(w, "started late\tp50 %s, p99 %s, max %s\n\t%s\n", span(l.P50), span(l.P99), span(l.Max), bars(l.Buckets))
	}
	for _, n := range r.NotJudged {
		what := names(n)
		if n.Slots > 0 {
			what = fmt.Sprintf("%d slots of %s", n.Slots, what)
		}
		label := "not judged"
		if n.Expected {
			label = "nothing due"
		}
		fmt.Fprintf(w, "%s\t%s: %s\n", label, printable.Clip(n.Reason, base.WidestCell), printable.Clip(what, base.WidestCell))
	}
	return w.Flush()
}

func span(ms float64) string {
	return base.Span(time.Duration(math.Round(ms*1000)) * time.Microsecond)
}

// wentBack describes the rewind.
func wentBack(r client.Rewind) string {
	return fmt.Sprintf("at %s nodes found that the ledger had lost writes (%s was at revision %d, then at %d): it was purged or restored; slots before that may have run more often than it records",
		r.Time.UTC().Format(time.RFC3339), r.Lost.Slot, r.Lost.Revision, r.Found)
}

// outcomes lists the counts by state, in the order of slot ls.
func outcomes(r client.Verification) string {
	var parts []string
	for _, state := range client.SlotStates() {
		if n := r.Outcomes[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// bars formats a histogram that is not cumulative: each slot counts in one bucket.
func bars(buckets []client.LateBucket) string {
	var parts []string
	above := "0"
	for _, b := range buckets {
		switch {
		case b.Slots == 0:
		case b.UpTo == 0:
			parts = append(parts, fmt.Sprintf("%d over %s", b.Slots, above))
		default:
			parts = append(parts, fmt.Sprintf("%d in %s to %s", b.Slots, above, span(b.UpTo)))
		}
		above = span(b.UpTo)
	}
	return strings.Join(parts, ", ")
}

func names(n client.NotJudged) string {
	list := strings.Join(n.Names, ", ")
	if more := n.Jobs - len(n.Names); more > 0 {
		list += fmt.Sprintf(" and %d more jobs", more)
	}
	return list
}

func wrongs(r client.Verification) string {
	return fmt.Sprintf("%d missing, %d without outcome, %d doubled, %d early", r.Missing, r.NoOutcome, r.Doubled, r.Early)
}

func (v *verifier) printProblems(sum client.Verification) error {
	if len(v.problems) == 0 {
		return nil
	}
	fmt.Fprintln(v.Stdout)
	if err := base.PrintRows(v.App, v.problems, "", "PROBLEM\tSLOT\tSTATE\tDETAIL\tREPAIR", problemCells); err != nil {
		return err
	}
	if more := sum.Problems() - len(v.problems); more > 0 {
		fmt.Fprintf(v.Stdout, "and %d more: -o json lists all\n", more)
	}
	if v.flags.repair {
		_, err := fmt.Fprintf(v.Stdout, "%d offered again, %d not, for the reason under REPAIR: verify again to see the results\n", sum.Offered, sum.BeyondRepair)
		return err
	}
	return nil
}
