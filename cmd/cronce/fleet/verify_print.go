package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/printable"
	"github.com/cronce-io/cronce/job"
)

// shown limits the problems in text output; JSON has all.
const shown = 20

// problemRow is a slot with a problem.
type problemRow struct {
	Problem      verify.Kind `json:"problem"`
	ID           string      `json:"id"`
	Job          string      `json:"job"`
	Slot         time.Time   `json:"slot,omitzero"`
	Due          time.Time   `json:"due,omitzero"`
	State        job.State   `json:"state,omitempty"`
	Node         string      `json:"node,omitempty"`
	Detail       string      `json:"detail"`
	Repair       string      `json:"repair,omitempty"`
	BeyondRepair string      `json:"beyond_repair,omitempty"`
}

// The values of repair.
const (
	offered        = "offered"
	alreadyOffered = "already_offered"
)

// verifySum is the last line of JSON.
type verifySum struct {
	OK           bool              `json:"ok"`
	From         time.Time         `json:"from"`
	To           time.Time         `json:"to"`
	Jobs         int               `json:"jobs"`
	Slots        int               `json:"slots"`
	Outcomes     map[job.State]int `json:"outcomes"`
	InProgress   int               `json:"in_progress"`
	Beside       int               `json:"beside"`
	Missing      int               `json:"missing"`
	NoOutcome    int               `json:"no_outcome"`
	Doubled      int               `json:"doubled"`
	Early        int               `json:"early"`
	Offered      int               `json:"offered"`
	BeyondRepair int               `json:"beyond_repair"`
	Late         lateness          `json:"late_ms"`
	NotJudged    []notJudged       `json:"not_judged"`
	Rewound      *core.Rewound     `json:"rewound,omitempty"`
}

type lateness struct {
	Slots   int          `json:"slots"`
	P50     float64      `json:"p50"`
	P99     float64      `json:"p99"`
	Max     float64      `json:"max"`
	Buckets []lateBucket `json:"buckets,omitempty"`
}

type lateBucket struct {
	Le    float64 `json:"le_ms,omitempty"`
	Slots int     `json:"slots"`
}

type notJudged struct {
	Reason string   `json:"reason"`
	Jobs   int      `json:"jobs"`
	Names  []string `json:"names"`
	Slots  int      `json:"slots,omitempty"`
}

// print prints the findings. With --repair it also repairs them, chunk by chunk, because
// there may be too many to hold in memory.
func (v *verifier) print(ctx context.Context) error {
	report := v.check.Report()
	sum := newVerifySum(report)
	if !v.rewound.IsZero() {
		sum.Rewound = &v.rewound
	}
	text := v.Output == base.OutputText
	if text {
		if err := v.printReport(report); err != nil {
			return err
		}
	}
	var first []problemRow
	err := inChunks(v.check.Problems(), func(problems []verify.Problem) error {
		rows, err := v.rows(ctx, problems, &sum)
		if text {
			first = append(first, rows[:min(len(rows), shown-len(first))]...)
			return err
		}
		// Also print what was offered before a failure.
		if printErr := base.PrintRows(v.App, rows, "", "", problemRow.cells); err == nil {
			err = printErr
		}
		return err
	})
	if err != nil {
		return err
	}
	if text {
		err = v.printProblems(first, report, sum)
	} else {
		err = v.PrintJSON(sum)
	}
	if err == nil && !report.OK() {
		err = fmt.Errorf("%w: %s", base.ErrFound, wrongs(report))
	}
	return err
}

// rows formats the problems, and offers the repairable ones again with --repair.
func (v *verifier) rows(ctx context.Context, problems []verify.Problem, sum *verifySum) ([]problemRow, error) {
	rows := make([]problemRow, len(problems))
	err := v.each(ctx, len(problems), func(ctx context.Context, i int) error {
		p := problems[i]
		rows[i] = problemRow{
			Problem: p.Kind, ID: p.Slot.ID(), Job: p.Slot.Job, Slot: p.Slot.At, Due: p.Due.UTC(),
			State: p.State, Node: p.Node, Detail: p.Detail, BeyondRepair: p.Beyond,
		}
		if !v.flags.repair || p.Beyond != "" {
			return nil
		}
		already, err := v.offer(ctx, p)
		switch {
		case err != nil:
			return err
		case already:
			rows[i].Repair = alreadyOffered
		default:
			rows[i].Repair = offered
		}
		return nil
	})
	for _, row := range rows {
		if row.Repair != "" {
			sum.Offered++
		}
		if row.BeyondRepair != "" {
			sum.BeyondRepair++
		}
	}
	return rows, err
}

func (p problemRow) cells() []string {
	repair := p.Repair
	if p.BeyondRepair != "" {
		repair = p.BeyondRepair
	}
	return []string{string(p.Problem), p.ID, base.Dash(string(p.State)), p.Detail, base.Dash(repair)}
}

func newVerifySum(r verify.Report) verifySum {
	sum := verifySum{
		OK: r.OK(), From: r.From.UTC(), To: r.To.UTC(), Jobs: r.Jobs, Slots: r.Slots, Outcomes: r.Outcomes,
		InProgress: r.InProgress, Beside: r.Beside, Missing: r.Missing, NoOutcome: r.NoOutcome, Doubled: r.Doubled, Early: r.Early,
		Late:      lateness{Slots: r.Lateness.Slots, P50: ms(r.Lateness.P50), P99: ms(r.Lateness.P99), Max: ms(r.Lateness.Max)},
		NotJudged: []notJudged{},
	}
	for _, b := range r.Lateness.Buckets {
		sum.Late.Buckets = append(sum.Late.Buckets, lateBucket{ms(b.Up), b.Slots})
	}
	for _, n := range r.NotJudged {
		sum.NotJudged = append(sum.NotJudged, notJudged{n.Reason, n.Jobs, n.Names, n.Slots})
	}
	return sum
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// printReport prints the summary.
func (v *verifier) printReport(r verify.Report) error {
	verdict := "all is well"
	if !r.OK() {
		verdict = wrongs(r)
	}
	w := base.NewTable(v.Stdout)
	fmt.Fprintf(w, "verdict\t%s\n", verdict)
	fmt.Fprintf(w, "slots\t%d of %d jobs, from %s to %s\n", r.Slots, r.Jobs, r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339))
	fmt.Fprintf(w, "outcomes\t%s\n", base.Dash(outcomes(r)))
	if !v.rewound.IsZero() {
		fmt.Fprintf(w, "went back\t%s\n", wentBack(v.rewound))
	}
	if r.InProgress > 0 {
		fmt.Fprintf(w, "in progress\t%d\n", r.InProgress)
	}
	if r.Beside > 0 {
		fmt.Fprintf(w, "beside\t%d of these are in no schedule: triggered, backfilled, or of a job that is not judged\n", r.Beside)
	}
	if l := r.Lateness; l.Slots > 0 {
		fmt.Fprintf(w, "started late\tp50 %s, p99 %s, max %s\n\t%s\n", base.Span(l.P50), base.Span(l.P99), base.Span(l.Max), bars(l.Buckets))
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

// outcomes lists the counts by state, in the order of slot ls.
func outcomes(r verify.Report) string {
	var parts []string
	for _, state := range control.SlotStates() {
		if n := r.Outcomes[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// bars formats a histogram that is not cumulative: each slot counts in one bucket.
func bars(buckets []verify.Bucket) string {
	var parts []string
	above := "0"
	for _, b := range buckets {
		switch {
		case b.Slots == 0:
		case b.Up == 0:
			parts = append(parts, fmt.Sprintf("%d over %s", b.Slots, above))
		default:
			parts = append(parts, fmt.Sprintf("%d in %s to %s", b.Slots, above, base.Span(b.Up)))
		}
		above = base.Span(b.Up)
	}
	return strings.Join(parts, ", ")
}

func names(n verify.NotJudged) string {
	list := strings.Join(n.Names, ", ")
	if more := n.Jobs - len(n.Names); more > 0 {
		list += fmt.Sprintf(" and %d more jobs", more)
	}
	return list
}

func wrongs(r verify.Report) string {
	return fmt.Sprintf("%d missing, %d without outcome, %d doubled, %d early", r.Missing, r.NoOutcome, r.Doubled, r.Early)
}

func (v *verifier) printProblems(first []problemRow, r verify.Report, sum verifySum) error {
	if len(first) == 0 {
		return nil
	}
	fmt.Fprintln(v.Stdout)
	if err := base.PrintRows(v.App, first, "", "PROBLEM\tSLOT\tSTATE\tDETAIL\tREPAIR", problemRow.cells); err != nil {
		return err
	}
	if more := r.Problems() - len(first); more > 0 {
		fmt.Fprintf(v.Stdout, "and %d more: -o json lists all\n", more)
	}
	if v.flags.repair {
		_, err := fmt.Fprintf(v.Stdout, "%d offered again, %d beyond repair: verify again to see the results\n", sum.Offered, sum.BeyondRepair)
		return err
	}
	return nil
}
