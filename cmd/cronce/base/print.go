package base

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/text/printable"
)

// Print prints v like PrintJSON if -o is json, else the text.
func (a *App) Print(v any, text string, args ...any) error {
	if a.Output == OutputJSON {
		return a.PrintJSON(v)
	}
	_, err := fmt.Fprintf(a.Stdout, text, args...)
	return err
}

// PrintJSON prints v on stdout, as one line.
func (a *App) PrintJSON(v any) error { return PrintLines(a, slices.Values([]any{v})) }

// PrintLines prints each value on stdout as one line of JSON. It skips a value that JSON
// cannot represent, prints the others, and then returns an error that says why.
func PrintLines[T any](a *App, values iter.Seq[T]) error {
	out := bufio.NewWriter(a.Stdout)
	enc := json.NewEncoder(printable.JSON{Writer: out})
	enc.SetEscapeHTML(false)
	var left error
	for v := range values {
		var bad *json.MarshalerError
		switch err := enc.Encode(v); {
		case errors.As(err, &bad):
			left = errors.Join(left, fmt.Errorf("skipped a value that cannot be printed: %w", err))
		case err != nil:
			return err
		}
	}
	return errors.Join(out.Flush(), left)
}

// MostNamed is how many jobs or values a command logs by name. It counts the others.
const MostNamed = 10

// WidestCell limits the bytes of one cell, because a table pads each line to the longest.
const WidestCell = 300

// PrintRows prints the rows as JSON Lines or as a table, as -o selects. If there are no rows,
// the text none replaces the table. cells returns the columns of a row.
func PrintRows[T any](a *App, rows []T, none, header string, cells func(T) []string) error {
	if a.Output == OutputJSON {
		return PrintLines(a, slices.Values(rows))
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.Stdout, none)
		return err
	}
	out := bufio.NewWriter(a.Stdout) // a table writes cell by cell
	w := NewTable(out)
	fmt.Fprintln(w, header)
	for _, row := range rows {
		columns := cells(row)
		for i, cell := range columns {
			columns[i] = printable.Clip(cell, WidestCell)
		}
		fmt.Fprintln(w, strings.Join(columns, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// NewTable returns a writer that aligns columns separated by tabs.
func NewTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// Relative formats how far t is from now: "in 3h20m", "5s ago". Longer times than a Duration can
// hold, 292 years, are counted in days.
func Relative(t, now time.Time) string {
	d, days := t.Sub(now), (t.Unix()-now.Unix())/(24*60*60)
	switch {
	case d == math.MinInt64:
		return fmt.Sprintf("%dd ago", -days)
	case d == math.MaxInt64:
		return fmt.Sprintf("in %dd", days)
	case d < 0:
		return Span(-d) + " ago"
	}
	return "in " + Span(d)
}

// Span formats a duration in at most two units.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(n time.Duration, unit string, m time.Duration, lesser string) string {
		if m == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, m, lesser)
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return two(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < 2*day:
		return two(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	return two(d/day, "d", d%day/time.Hour, "h")
}

// Plural formats a count: "1 slot", "2 slots".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Brief is the first line of s, cut to n characters.
func Brief(s string, n int) string {
	s, _, cut := strings.Cut(strings.TrimSpace(s), "\n")
	if utf8.RuneCountInString(s) > n {
		s, cut = string([]rune(s)[:n-3]), true
	}
	if cut {
		s += "..."
	}
	return printable.Line(s)
}
