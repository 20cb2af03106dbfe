package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/check/against"
)

// againstSummary is the last line of a comparison.
type againstSummary struct {
	OK         bool      `json:"ok"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Jobs       int       `json:"jobs"`
	Both       int       `json:"both"`
	OnlyOurs   int       `json:"only_ours"`
	OnlyTheirs int       `json:"only_theirs"`
	Twice      int       `json:"twice,omitempty"`
	NotJudged  int       `json:"not_judged,omitempty"`
}

// print prints the comparison. Differences are an error.
func (c *comparison) print(all []compared) error {
	sum := againstSummary{From: c.window.From.UTC(), To: c.window.To.UTC(), Jobs: len(all)}
	var found []against.Difference
	for _, j := range all {
		sum.Both += j.Both
		sum.OnlyOurs += j.OnlyOurs
		sum.OnlyTheirs += j.OnlyTheirs
		sum.Twice += j.Twice
		sum.NotJudged += j.NotJudged
		found = append(found, j.found...)
	}
	sum.OK = len(found) == 0
	print := c.printText
	if c.Output == base.OutputJSON {
		print = c.printLines
	}
	if err := print(sum, all, found); err != nil {
		return err
	}
	if !sum.OK {
		return fmt.Errorf("%w: %d runs only here, %d only in the log", base.ErrFound, sum.OnlyOurs, sum.OnlyTheirs)
	}
	return nil
}

func (c *comparison) printLines(sum againstSummary, all []compared, found []against.Difference) error {
	if err := base.PrintLines(c.App, slices.Values(found)); err != nil {
		return err
	}
	if err := base.PrintLines(c.App, slices.Values(all)); err != nil {
		return err
	}
	return c.PrintJSON(sum)
}

func (c *comparison) printText(sum againstSummary, all []compared, found []against.Difference) error {
	if err := base.PrintRows(c.App, all, "no jobs to compare", "JOB\tBOTH\tONLY HERE\tONLY IN THE LOG\tLOG IS LATER BY\tNOTE", comparedCells); err != nil {
		return err
	}
	if len(found) > 0 {
		fmt.Fprintln(c.Stdout)
		if err := base.PrintRows(c.App, found[:min(len(found), mostShown)], "", "ONLY\tJOB\tTIME\tLINE\tSLOT\tSTATE", differenceCells); err != nil {
			return err
		}
	}
	if more := len(found) - mostShown; more > 0 {
		fmt.Fprintf(c.Stdout, "and %d more: -o json lists all\n", more)
	}
	_, err := fmt.Fprintf(c.Stdout, "compared from %s to %s\n", sum.From.Format(time.RFC3339), sum.To.Format(time.RFC3339))
	return err
}

func comparedCells(j compared) []string {
	offset := "-"
	if o := j.Offset; o != nil {
		offset = fmt.Sprintf("%s (%s to %s)", signed(o.P50), signed(o.Min), signed(o.Max))
	}
	var notes []string
	if len(j.Also) > 0 {
		notes = append(notes, "with "+strings.Join(j.Also, ", ")+", which has the same command")
	}
	if j.Unknown {
		notes = append(notes, "not in the registry")
	}
	if j.Twice > 0 {
		notes = append(notes, fmt.Sprintf("%s no shadow: the work was done twice", base.Plural(j.Twice, "slot")))
	}
	if j.NotJudged > 0 {
		notes = append(notes, base.Plural(j.NotJudged, "earlier line")+" not judged")
	}
	return []string{j.Job, fmt.Sprint(j.Both), fmt.Sprint(j.OnlyOurs), fmt.Sprint(j.OnlyTheirs), offset, cmp.Or(strings.Join(notes, "; "), "-")}
}

func differenceCells(d against.Difference) []string {
	side, line, state := "here", "-", string(d.State)
	if d.Kind == against.OnlyTheirs {
		side, line = "in the log", fmt.Sprint(d.Line)
	}
	if d.Text != "" {
		state = strings.TrimPrefix(state+": "+d.Text, ": ")
	}
	if d.Shadow {
		state += ", shadow"
	}
	return []string{side, d.Job, d.Time.UTC().Format("2006-01-02T15:04:05.000Z"), line, cmp.Or(d.ID, "-"), cmp.Or(state, "-")}
}
