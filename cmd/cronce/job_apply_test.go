package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

var (
	stamped = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT[\d:.]+Z`)
	byMe    = regexp.MustCompile(`alice@[A-Za-z0-9_.-]+`)
)

// settled replaces what differs from run to run: times of this century, and the name of the host.
func settled(s string) string {
	return byMe.ReplaceAllString(stamped.ReplaceAllString(s, "TIME"), "alice@HOST")
}

// newOffice is a fleet with a live worker, and alice as the operator.
func newOffice(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.env["USER"] = "alice"
	f.join(t, exchange.Node{
		Name: "web1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true,
		Queues: []string{"default", "slow"},
	}, "report", "backup", "old", "fresh")
	return f
}

// apply applies a file of these jobs, each a line of YAML.
func (f *fixture) apply(t *testing.T, jobs []string, args ...string) result {
	t.Helper()
	c := f.cli
	c.stdin = "version: 1\njobs:\n"
	for _, j := range jobs {
		c.stdin += "  - {" + j + "}\n"
	}
	return c.run(t, append([]string{"job", "apply", "-f", "-"}, args...)...)
}

func (r result) done(t *testing.T) string {
	t.Helper()
	if r.code != base.ExitDone || r.stderr != "" {
		t.Fatalf("exit status %d, stderr:\n%s", r.code, r.stderr)
	}
	return r.stdout
}

func TestJobApply(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	// Far away, so that the coming slots are always the same.
	const from = `from: "2100-01-01T00:00:00Z"`
	f.define(t, plans.Definition{Job: job.Job{
		Name: "backup", Schedule: "0 3 * * *", Queue: "slow", From: at("2100-01-01T00:00:00Z"),
	}, Owner: "file", Node: "web1"})
	f.apply(t, []string{`name: old, schedule: "@daily", ` + from}).done(t) // one by one: of two at once the revisions are drawn
	f.apply(t, []string{`name: report, schedule: "0 7 * * *", payload: {format: pdf}, ` + from}).done(t)

	jobs := []string{
		`name: report, schedule: "0 7 * * MON-FRI", timezone: Europe/Berlin, payload: {format: csv}, ` + from,
		`name: backup, schedule: "0 3 * * *", queue: slow, ` + from,
		`name: fresh, schedule: "0 12 * * *", action: {exec: [/bin/true]}, ` + from,
	}
	golden(t, "job_apply_dry.txt", settled(f.apply(t, jobs, "--prune", "--dry-run").done(t)))
	golden(t, "job_apply_dry.json", settled(f.apply(t, jobs, "--prune", "--dry-run", "-o", "json").done(t)))
	golden(t, "job_apply.txt", settled(f.apply(t, jobs, "--prune", "--yes").done(t)))
	golden(t, "job_apply_again.txt", settled(f.apply(t, jobs, "--prune").done(t)))
	again := f.apply(t, jobs, "--prune", "-o", "json").done(t)
	golden(t, "job_apply_again.json", regexp.MustCompile(`"revision":[45]`).ReplaceAllString(settled(again), `"revision":"4 or 5"`))
}

// Such a job has no slots that are missed: its messages wait in their stream, and each starts a run.
func TestJobResumeSaysThatTheMessagesOfAJobThatTheyStartWait(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.apply(t, []string{`name: charge, on: {stream: ORDERS, subject: orders.paid}`})
	f.ok(t, "job", "pause", "charge")
	for _, out := range []string{f.ok(t, "job", "show", "charge"), f.ok(t, "job", "resume", "charge", "--dry-run"), f.ok(t, "job", "resume", "charge")} {
		if !strings.Contains(out, "messages of stream ORDERS wait") || strings.Contains(out, "missed") {
			t.Errorf("got %s", out)
		}
	}
}

// They are recorded as soon as their turn comes, so none is counted and none is caught up.
func TestJobResumeSaysThatTheSlotsOfAJobAfterOthersWereMissed(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.apply(t, []string{`name: extract, schedule: "@hourly"`, `name: load, after: [extract]`})
	f.ok(t, "job", "pause", "load")
	for _, out := range []string{f.ok(t, "job", "show", "load"), f.ok(t, "job", "resume", "load", "--dry-run"), f.ok(t, "job", "resume", "load")} {
		if !strings.Contains(out, "is recorded as missed, and none will run") || strings.Contains(out, "with policy") {
			t.Errorf("got %s", out)
		}
	}
}

func TestJobApplyToAPausedJobSaysThatItsSlotsWaitForItsEnd(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.apply(t, []string{`name: report, schedule: "@daily"`}).done(t)
	f.ok(t, "job", "pause", "report")
	out := f.apply(t, []string{`name: report, schedule: "@hourly"`}).done(t)
	if !strings.Contains(out, "the job is paused: no slots until cronce job resume report") {
		t.Errorf("prints %s", out)
	}
	if got := f.ok(t, "job", "ls"); !strings.Contains(got, "paused") {
		t.Errorf("afterwards job ls prints %s", got)
	}
}

func TestJobApplyWarnsWhenNobodyWouldRunAJob(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	r := f.apply(t, []string{`name: report, schedule: "@daily"`, `name: orphan, schedule: "@daily"`})
	if r.code != base.ExitDone || !strings.Contains(r.stderr, "no live node runs these jobs") || !strings.Contains(r.stderr, "[orphan]") {
		t.Errorf("%+v, want a warning about orphan alone", r)
	}
}

func TestJobApplyOfAWrongFileAsksNobody(t *testing.T) {
	t.Parallel()
	c := cli{env: map[string]string{"CRONCE_SERVER": "nats://127.0.0.1:1"}}
	for yaml, want := range map[string]string{
		"":                     "empty",
		"version: 2\njobs: []": "version 2",
		"version: 1\njobs:\n  - {name: a, schedule: \"61 * * * *\"}":                                   "61",
		"version: 1\njobs:\n  - {name: \"a*\", schedule: \"@daily\"}":                                  "a*",
		"version: 1\njobs:\n  - {name: \"a\\nb\", schedule: \"@daily\"}":                               `a\nb`,
		"version: 1\njobs:\n  - {name: a, schedule: \"@daily\"}\n  - {name: a, schedule: \"@hourly\"}": "line 3",
		"version: 1\njobs:\n  - {name: a, schedule: \"@daily\", action: {}}":                           "action",
	} {
		c.stdin = yaml
		if r := c.run(t, "job", "apply", "-f", "-"); r.code != base.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want status 2 and %q", yaml, r, want)
		}
	}
	c.run(t, "job", "apply").oneError(t, base.ExitUsage, "-f FILE")
	c.run(t, "job", "apply", "-f", "/nowhere/jobs.yaml").oneError(t, base.ExitUsage, "/nowhere/jobs.yaml")
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c.run(t, "job", "apply", "-f", "nowhere.yaml").oneError(t, base.ExitUsage, "open nowhere.yaml", "(in the folder "+dir+"); try: cronce import --help")
	c.run(t, "job", "apply", "-f", "-", "--revision", "x").oneError(t, base.ExitUsage, "--revision")
}

func TestJobApplyOverWhatWasNotSeenIsAConflict(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.apply(t, []string{`name: report, schedule: "@daily"`}).done(t)
	f.env["USER"] = "bob\x1b[2J"
	f.apply(t, []string{`name: report, schedule: "@weekly"`}).done(t)
	f.env["USER"] = "alice"
	r := f.apply(t, []string{`name: report, schedule: "@hourly"`}, "--revision", "1")
	r.oneError(t, base.ExitFailed, "job report was changed meanwhile by", `bob\x1b[2J@`, "(operator)", "revision 2", "try: ")
	if got := f.apply(t, []string{`name: report, schedule: "@weekly"`}, "--revision", "1").done(t); !strings.Contains(got, "1 unchanged") {
		t.Errorf("what stands there already is no conflict; got %s", got)
	}
	f.apply(t, []string{`name: report, schedule: "@hourly"`}, "--revision", "2").done(t)
}

// A stored value must not move the cursor of the reader's terminal.
func TestWhatIsStoredCannotWriteToTheTerminal(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@daily", Payload: []byte(`{"\u001b[2J":1}`)}, Owner: "a\x1bb", Node: "c\nd"})
	out := f.apply(t, []string{`name: report, schedule: "@daily", payload: {a: "\e[31m"}`}).done(t)
	if strings.ContainsAny(out, "\x1b\r\x00") || !strings.Contains(out, `last written by c\nd (a\x1bb)`) {
		t.Errorf("printed %q", out)
	}
}

func TestJobRelease(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.apply(t, []string{`name: report, schedule: "@daily"`}).done(t)
	if got, want := f.ok(t, "job", "release", "report"), "released report: the next node that starts with a different definition replaces this one\n"; got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
	if got, want := f.ok(t, "job", "release", "report"), "report is not owned by an operator (owner: released)\n"; got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
	if got, want := f.ok(t, "job", "release", "report", "-o", "json"), `{"job":"report","revision":2,"owner":"released","changed":false}`+"\n"; got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
	f.run(t, "job", "release", "reprot").oneError(t, base.ExitFailed, "no job named reprot", "try: report")
}

// strangeNames are none of jobs, and must reach no server.
var strangeNames = []string{"", "*", ">", "a.b", "a b", "a\nb", "a\x00b", "\x1b[2J", `a"b`, "a'b", "a/b", "ä", strings.Repeat("a", 65)}

func TestStrangeNamesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	c := cli{env: map[string]string{"CRONCE_SERVER": "nats://127.0.0.1:1"}}
	for _, command := range []string{"show", "next", "rm", "pause", "resume", "release"} {
		for _, name := range strangeNames {
			c.run(t, "job", command, "--", name).oneError(t, base.ExitUsage, "invalid job name", fmt.Sprintf("%q", name))
		}
	}
}

func TestApplyAsksBeforeItRemovesManyJobs(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	var jobs []string
	for i := range 8 {
		jobs = append(jobs, fmt.Sprintf("name: job%d, schedule: none", i))
	}
	f.apply(t, jobs)
	r := f.apply(t, jobs[:5], "--prune")
	for _, want := range []string{"would remove 3 of the 8 jobs that apply created", "job5, job6, job7", "no terminal: add --yes"} {
		if r.code != base.ExitFailed || !strings.Contains(r.stderr, want) {
			t.Errorf("three of eight: %d, %s, want %q", r.code, r.stderr, want)
		}
	}
	if got := f.run(t, "job", "ls", "-o", "json").stdout; strings.Count(got, "\n") != 8 {
		t.Errorf("jobs were removed:\n%s", got)
	}
	if r := f.apply(t, jobs[:6], "--prune"); r.code != base.ExitDone || !strings.Contains(r.stdout, "2 removed, 6 unchanged") {
		t.Errorf("two of eight: %+v", r)
	}
	if r := f.apply(t, jobs[:1], "--prune", "--yes"); r.code != base.ExitDone || !strings.Contains(r.stdout, "5 removed, 1 unchanged") {
		t.Errorf("with --yes: %+v", r)
	}
	if r := f.apply(t, jobs[:1], "--yes"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "--yes needs --prune") {
		t.Errorf("--yes alone: %+v", r)
	}
}

// A part of a job file behind an empty document is read: its jobs were pruned otherwise.
func TestApplyRefusesAFileOfSeveralDocuments(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.apply(t, []string{"name: a, schedule: none", "name: b, schedule: none"})
	c := f.cli
	c.stdin = "version: 1\njobs:\n  - {name: a, schedule: none}\n---\n# nothing\n---\njobs:\n  - {name: b, schedule: none}\n"
	if r := c.run(t, "job", "apply", "-f", "-", "--prune", "--yes"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "<stdin>:7:1: a second YAML document") {
		t.Errorf("%+v", r)
	}
}
