package base

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/text/printable"
)

func printer() (*App, *strings.Builder) {
	var out strings.Builder
	return &App{Stdout: &out, Output: OutputJSON}, &out
}

func TestListingLeavesOutAValueThatJSONCannotHoldAndPrintsWholeLines(t *testing.T) {
	t.Parallel()
	type row struct{ At time.Time }
	rows := make([]row, 500) // more than one buffer
	for i := range rows {
		rows[i].At = time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	}
	rows[250].At = time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC)
	a, out := printer()
	err := PrintRows(a, rows, "", "", nil)
	if err == nil || ExitCode(err) != ExitFailed {
		t.Errorf("error %v, want one that says what was left out", err)
	}
	if n := strings.Count(out.String(), `{"At":"2026-03-28T12:00:00Z"}`+"\n"); n != len(rows)-1 || !strings.HasSuffix(out.String(), "}\n") {
		t.Errorf("%d whole lines, want %d", n, len(rows)-1)
	}
}

func TestTableIsNoWiderThanItsBounds(t *testing.T) {
	t.Parallel()
	a, out := printer()
	a.Output = OutputText
	rows := []string{"short", "\x1b[31m" + strings.Repeat("x", 300_000)}
	if err := PrintRows(a, rows, "", "STATE\tNODE", func(s string) []string { return []string{s, "n"} }); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 2*WidestCell+20 || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), printable.Hidden) {
			t.Errorf("a line of %d bytes: %.100q", len(line), line)
		}
	}
}
