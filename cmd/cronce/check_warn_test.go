package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

func TestCheckWarnsOfAJobThatIsNotThereAndOfAProgramThatIsNot(t *testing.T) {
	t.Parallel()
	const file = `version: 1
jobs:
  - {name: a, after: [nosuch], action: {exec: [/bin/sh]}}
  - {name: b, after: [a], action: {exec: [no-such-program-here, x]}}
`
	status, stdout, stderr := runCheck(t, file, "-")
	if status != base.ExitDone || !strings.Contains(stdout, "is valid: 2 jobs") {
		t.Errorf("status %d, stdout\n%s", status, stdout)
	}
	for _, want := range []string{`no job "nosuch" is in this file`, `"no-such-program-here": executable file not found`, "job=a line=3", "job=b line=4"} {
		if !strings.Contains(strings.ReplaceAll(stderr, `\"`, `"`), want) {
			t.Errorf("stderr does not say %q:\n%s", want, stderr)
		}
	}
	if n := strings.Count(stderr, "\n"); n != 2 {
		t.Errorf("%d lines on stderr, want 2:\n%s", n, stderr)
	}
	_, stdout, stderr = runCheck(t, file, "-o", "json", "-")
	for line := range strings.Lines(stdout) {
		var c struct{ Warnings []string }
		if err := json.Unmarshal([]byte(line), &c); err != nil || len(c.Warnings) != 1 {
			t.Errorf("%v, warnings %q in %s", err, c.Warnings, line)
		}
	}
	if stderr != "" {
		t.Errorf("with -o json the warnings are in the lines, got on stderr\n%s", stderr)
	}
}

// manyJobs is a file of n jobs with the same program.
func manyJobs(n int, program string) string {
	var b strings.Builder
	b.WriteString("version: 1\njobs:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: job-%d, schedule: \"0 7 * * *\", action: {exec: [%s]}}\n", i, program)
	}
	return b.String()
}

func TestCheckOfALargeFileIsAScreenAndCountsTheRest(t *testing.T) {
	t.Parallel()
	file := manyJobs(1000, "no-such-program-here")
	status, stdout, stderr := runCheck(t, file, "-")
	if status != base.ExitDone || !strings.Contains(stdout, "and 800 more") || !strings.Contains(stdout, "is valid: 1000 jobs") {
		t.Errorf("status %d, stdout ends in %q", status, stdout[max(0, len(stdout)-200):])
	}
	if n := strings.Count(stdout, "\n"); n > 3*200+10 {
		t.Errorf("%d lines on stdout", n)
	}
	if n := strings.Count(stderr, "\n"); n != base.MostNamed+1 {
		t.Errorf("%d lines on stderr, want %d and a count", n, base.MostNamed)
	}
	if _, stdout, _ = runCheck(t, file, "-o", "json", "-"); strings.Count(stdout, "\n") != 1000 {
		t.Error("-o json does not list every job")
	}
}
