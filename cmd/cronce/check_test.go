package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// runCheck executes a command line at noon before Europe's clocks change.
func runCheck(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	a := &base.App{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
		Now:    func() time.Time { return time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC) },
	}
	status = execute(context.Background(), a, append([]string{"check"}, args...))
	return status, out.String(), errs.String()
}

func TestCheckListsTheNextSlotsOfTheQuickstart(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runCheck(t, "", "../../examples/quickstart.yaml")
	const want = `JOB     SCHEDULE         TIMEZONE       NEXT, LOCAL                NEXT, UTC
tick    @every 2s        UTC            2026-03-28T12:00:02Z       2026-03-28T12:00:02Z
                                        2026-03-28T12:00:04Z       2026-03-28T12:00:04Z
                                        2026-03-28T12:00:06Z       2026-03-28T12:00:06Z
flaky   */10 * * * * *   UTC            2026-03-28T12:00:10Z       2026-03-28T12:00:10Z
                                        2026-03-28T12:00:20Z       2026-03-28T12:00:20Z
                                        2026-03-28T12:00:30Z       2026-03-28T12:00:30Z
report  0 7 * * MON-FRI  Europe/Berlin  2026-03-30T07:00:00+02:00  2026-03-30T05:00:00Z
                                        2026-03-31T07:00:00+02:00  2026-03-31T05:00:00Z
                                        2026-04-01T07:00:00+02:00  2026-04-01T05:00:00Z

../../examples/quickstart.yaml is valid: 3 jobs
`
	if status != base.ExitDone || stdout != want || stderr != "" {
		t.Errorf("status %d, stderr %q, got\n%s\nwant\n%s", status, stderr, stdout, want)
	}
}

func TestCheckNeedsNoSecretsForTheSidecarExample(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runCheck(t, "", "../../examples/sidecar.yaml")
	const first = `JOB      SCHEDULE         TIMEZONE       NEXT, LOCAL                NEXT, UTC
report   0 7 * * MON-FRI  Europe/Berlin  2026-03-30T07:00:00+02:00  2026-03-30T05:00:00Z
`
	const last = "../../examples/sidecar.yaml is valid: 3 jobs\n"
	if status != base.ExitDone || !strings.HasPrefix(stdout, first) || !strings.HasSuffix(stdout, last) || stderr != "" {
		t.Errorf("status %d, stderr %q, got\n%s\nwant\n%s...\n%s", status, stderr, stdout, first, last)
	}
}

const checkedFile = `version: 1
jobs:
  - {name: a, schedule: "0 7 * * *", timezone: Europe/Berlin, queue: slow, action: {exec: [/bin/sh]}}
  - {name: once, schedule: "@at 2026-03-28T13:00:00Z", action: {exec: [/bin/sh]}}
  - {name: past, schedule: "@hourly", until: 2026-01-01T00:00:00Z, action: {exec: [/bin/sh]}}
`

func TestCheckPrintsALineOfJSONForEachJob(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runCheck(t, checkedFile, "-o", "json", "-")
	const want = `{"job":"a","schedule":"0 7 * * *","timezone":"Europe/Berlin","queue":"slow","next":["2026-03-29T05:00:00Z","2026-03-30T05:00:00Z","2026-03-31T05:00:00Z"]}
{"job":"once","schedule":"@at 2026-03-28T13:00:00Z","timezone":"UTC","queue":"default","next":["2026-03-28T13:00:00Z"]}
{"job":"past","schedule":"@hourly","timezone":"UTC","queue":"default","next":[]}
`
	if status != base.ExitDone || stdout != want || stderr != "" {
		t.Errorf("status %d, stderr %q, got\n%s\nwant\n%s", status, stderr, stdout, want)
	}
}

func TestCheckSaysWhenAJobNeverRunsAgain(t *testing.T) {
	t.Parallel()
	_, stdout, _ := runCheck(t, checkedFile, "-")
	if !strings.Contains(stdout, "past  @hourly                   UTC            never again                -\n") {
		t.Errorf("got\n%s", stdout)
	}
}

func TestCheckOfABadFileIsWrongUsage(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(checkedFile, "slow", "a.b", 1)
	status, stdout, stderr := runCheck(t, bad, "-")
	const want = `cronce: <stdin>:3:70: job "a": queue name "a.b": want 1 to 64 characters of A-Z a-z 0-9 _ -
    3 |   - {name: a, schedule: "0 7 * * *", timezone: Europe/Berlin, queue: a.b, action: {exec: [/bin/sh]}}
      |                                                                      ^
`
	if status != base.ExitUsage || stdout != "" || stderr != want {
		t.Errorf("status %d, stdout %q, got\n%s\nwant\n%s", status, stdout, stderr, want)
	}
}

func TestCheckOfNoFileIsWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"no-such-file.yaml"}, {"."}, {}, {"a", "b"}} {
		if status, stdout, stderr := runCheck(t, "", args...); status != base.ExitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("check %q: status %d, stdout %q, stderr %q: want status 2 and one line", args, status, stdout, stderr)
		}
	}
}

func TestCheckReportsAReaderThatFails(t *testing.T) {
	t.Parallel()
	a := &base.App{
		Stdin: io.MultiReader(strings.NewReader(checkedFile), failingReader{}), Stdout: io.Discard, Stderr: io.Discard,
		Getenv: func(string) string { return "" }, Now: time.Now,
	}
	if status := execute(context.Background(), a, []string{"check", "-"}); status != base.ExitUsage {
		t.Errorf("status %d, want %d: half a file is not a right one", status, base.ExitUsage)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestSchemaIsOneLineOfJSON(t *testing.T) {
	t.Parallel()
	var schema struct{ Title string }
	if r := (cli{}).run(t, "check", "--schema", "-o", "json"); strings.Count(r.stdout, "\n") != 1 || json.Unmarshal([]byte(r.stdout), &schema) != nil || schema.Title == "" {
		t.Errorf("%+v", r)
	}
}
