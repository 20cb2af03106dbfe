package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/printable"
)

func printer() (*app, *strings.Builder) {
	var out strings.Builder
	return &app{stdout: &out, output: outputJSON}, &out
}

func TestListingLeavesOutAValueThatJSONCannotHoldAndPrintsWholeLines(t *testing.T) {
	t.Parallel()
	type row struct{ At time.Time }
	rows := make([]row, 500) // more than one buffer
	for i := range rows {
		rows[i].At = noon
	}
	rows[250].At = time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC)
	a, out := printer()
	err := printRows(a, rows, "", "", nil)
	if err == nil || exitCode(err) != exitFailed {
		t.Errorf("error %v, want one that says what was left out", err)
	}
	if n := strings.Count(out.String(), `{"At":"2026-03-28T12:00:00Z"}`+"\n"); n != len(rows)-1 || !strings.HasSuffix(out.String(), "}\n") {
		t.Errorf("%d whole lines, want %d", n, len(rows)-1)
	}
}

func TestTableIsNoWiderThanItsBounds(t *testing.T) {
	t.Parallel()
	a, out := printer()
	a.output = outputText
	rows := []string{"short", "\x1b[31m" + strings.Repeat("x", 300_000)}
	if err := printRows(a, rows, "", "STATE\tNODE", func(s string) []string { return []string{s, "n"} }); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 2*widestCell+20 || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), printable.Hidden) {
			t.Errorf("a line of %d bytes: %.100q", len(line), line)
		}
	}
}

func TestErrorIsShownWithoutWhatATerminalObeys(t *testing.T) {
	t.Parallel()
	r := cli{}.run(t, "check", "no\x1b[31m-such-file")
	if r.code != exitUsage || strings.ContainsFunc(strings.TrimSuffix(r.stderr, "\n"), printable.Hidden) {
		t.Errorf("%+v", r)
	}
	r = cli{}.run(t, "next", strings.Repeat("x", 100_000))
	if r.code != exitUsage || len(r.stderr) > 3000 {
		t.Errorf("%d bytes on stderr, status %d", len(r.stderr), r.code)
	}
}
