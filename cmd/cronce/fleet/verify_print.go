package fleet

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/text/printable"
)

// mostShown limits the problems in text output. JSON has all.
const mostShown = 20

// print prints the problems and the summary. err is the error that ended a repair.
func (v *verifier) print(sum client.Verification, err error) error {
	if v.Output == base.OutputText {
		err = v.printText(sum, err)
	} else {
		// Also print what was offered before a failure.
		if printErr := v.flush(); err == nil {
			err = printErr
		}
		if err == nil {
			err = v.PrintJSON(sum)
		}
	}
	if err == nil && !sum.OK {
		err = fmt.Errorf("%w: %s", base.ErrFound, wrongs(sum))
	}
	return err
}

func (v *verifier) printText(sum client.Verification, err error) error {
	if printErr := v.printReport(sum); printErr != nil {
		return printErr
	}
	if err != nil {
		return err
	}
	return v.printProblems(sum)
}

func problemCells(p client.SlotProblem) []string {
	return []string{string(p.Problem), p.ID, cmp.Or(string(p.State), "-"), p.Detail, cmp.Or(p.BeyondRepair, string(p.Repair), "-")}
}

// printReport prints the summary.
func (v *verifier) printReport(r client.Verification) error {
	verdict := "all is well"
	if !r.OK {
		verdict = wrongs(r)
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

// span formats milliseconds.
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
		_, err := fmt.Fprintf(v.Stdout, "%d offered again, %d beyond repair: verify again to see the results\n", sum.Offered, sum.BeyondRepair)
		return err
	}
	return nil
}
