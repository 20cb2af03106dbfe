package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// storeRaw puts under a job's name what no program of this version would.
func (f *fixture) storeRaw(t *testing.T, name, value string) {
	t.Helper()
	js := natstest.JetStream(t, natstest.Connect(t, f.url))
	jobs, err := js.KeyValue(t.Context(), "cronce_jobs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.PutString(t.Context(), name, value); err != nil {
		t.Fatal(err)
	}
}

func TestJobShow(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	const from = `from: "2100-01-01T00:00:00Z"`
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "0 6 * * *", From: at("2100-01-01T00:00:00Z")}, Owner: "file", Node: "web1"})
	f.apply(t, []string{`name: report, schedule: "0 7 * * MON-FRI", timezone: Europe/Berlin, payload: {format: pdf}, ` + from}).done(t)
	eight, nine := at("2026-03-28T08:00:00Z"), at("2026-03-28T09:00:00Z")
	f.record(t, job.Record{Slot: job.NewSlot("report", nine), Queue: "default", Node: "web1", Due: nine, Output: "not shown here"}, job.Succeeded)
	f.record(t, job.Record{Slot: job.NewSlot("report", eight), Queue: "default", Node: "web1", Due: eight, Error: "exit status 1"}, job.Failed)
	f.record(t, job.Record{Slot: job.NewSlot("reporter", eight), Queue: "default", Node: "web1"}, job.Failed)

	golden(t, "job_show.txt", settled(f.ok(t, "job", "show", "report")))
	golden(t, "job_show.json", settled(f.ok(t, "job", "show", "report", "-o", "json")))

	file := f.cli
	file.stdin = f.ok(t, "job", "show", "report", "--file")
	golden(t, "job_show_file.yaml", file.stdin)
	if got := file.run(t, "job", "apply", "-f", "-").done(t); got != "1 unchanged\n" {
		t.Errorf("to apply what --file prints says %q", got)
	}
	f.run(t, "job", "show", "report", "--file", "-o", "json").oneError(t, base.ExitUsage, "exclude each other")

	f.ok(t, "job", "pause", "report")
	f.ok(t, "job", "resume", "report")
	f.ok(t, "job", "pause", "report")
	golden(t, "job_show_paused.txt", settled(f.ok(t, "job", "show", "report")))
	golden(t, "job_show_paused.json", settled(f.ok(t, "job", "show", "report", "-o", "json")))
	f.run(t, "job", "show", "raport").oneError(t, base.ExitFailed, "no job named raport", "try: report")
}

// A definition that cannot be read disables its own job, is shown as such, and can
// be mended or removed.
func TestABrokenDefinitionIsShownAndDisablesNoOther(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@daily"}, Owner: "file", Node: "web1"})
	f.storeRaw(t, "garbage", "not \x1b[2J JSON")
	f.storeRaw(t, "newer", `{"v":2,"job":{"name":"newer"}}`)
	f.storeRaw(t, "other", `{"v":1,"job":{"name":"another","plan":{"schedule":"@daily"}},"owner":"file","node":"x","nonce":"y"}`)
	f.storeRaw(t, "wrong", `{"v":1,"job":{"name":"wrong","plan":{"schedule":"61 * * * *"}},"owner":"file","node":"x","nonce":"y"}`)

	golden(t, "job_ls_broken.txt", f.ok(t, "job", "ls"))
	golden(t, "job_ls_broken.json", f.ok(t, "job", "ls", "-o", "json"))
	for _, name := range []string{"garbage", "newer", "other", "wrong"} {
		text := f.ok(t, "job", "show", name)
		if !strings.Contains(text, "broken ") || strings.Contains(text, "\x1b") {
			t.Errorf("job show %s prints %q", name, text)
		}
		if got := f.ok(t, "job", "show", name, "-o", "json"); !strings.Contains(got, `"broken":"`) {
			t.Errorf("job show -o json %s prints %s", name, got)
		}
		for _, verb := range []string{"next", "pause", "resume", "release"} {
			f.run(t, "job", verb, name).oneError(t, base.ExitFailed, "the stored definition of job "+name+" is broken", "try: ")
		}
		f.run(t, "job", "backfill", name, "--from", "2026-11-21T00:00:00Z").oneError(t, base.ExitFailed, "the stored definition of job "+name+" is broken", "try: ")
	}
	mended := f.apply(t, []string{`name: wrong, schedule: "@daily"`})
	if mended.code != base.ExitDone || !strings.Contains(mended.stdout, "updated: wrong, in place of a broken definition") {
		t.Errorf("apply over what is broken: %+v", mended)
	}
	if r := f.apply(t, []string{`name: newer, schedule: "@daily"`}); r.code != base.ExitFailed || !strings.Contains(r.stderr, "upgrade this program") {
		t.Errorf("apply over what a newer program wrote: %+v", r)
	}
	for _, name := range []string{"garbage", "newer", "other"} {
		f.ok(t, "job", "rm", name)
	}
	if got := f.ok(t, "job", "ls"); strings.Contains(got, "broken") {
		t.Errorf("afterwards job ls prints %s", got)
	}
}

func TestJobNext(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "30 2 * * *", Timezone: "Europe/Berlin"}, Owner: "file", Node: "web1"})
	args := []string{"job", "next", "report", "--from", "2026-03-27T00:00:00Z", "--count", "3", "-o", "json"}
	want := f.run(t, "next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-27T00:00:00Z", "--count", "3", "-o", "json")
	if got := f.ok(t, args...); got != want.stdout || got == "" {
		t.Errorf("prints %s, want what next prints: %s", got, want.stdout)
	}
	// On the day when clocks go forward, the next slot is at 03:00.
	if got := f.ok(t, "job", "next", "report", "--count", "1"); !strings.Contains(got, "0:00 CE") {
		t.Errorf("prints %s", got)
	}
	f.ok(t, "job", "pause", "report")
	if r := f.run(t, args...); r.stdout != want.stdout || !strings.Contains(r.stderr, "paused") || !strings.Contains(r.stderr, "cronce job resume report") {
		t.Errorf("of a paused job: %+v", r)
	}
	f.run(t, "job", "next", "report", "--count", "0").oneError(t, base.ExitUsage, "--count 0")
	f.run(t, "job", "next", "report", "--from", "soon").oneError(t, base.ExitUsage, `--from "soon"`)
}

func TestJobPauseAndResume(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	var said strings.Builder
	say := func(args ...string) {
		said.WriteString("$ cronce " + strings.Join(args, " ") + "\n" + settled(f.ok(t, args...)))
	}
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@yearly"}, Owner: "file", Node: "web1"})
	// 412 slots, all older than the horizon whenever this test runs, so none may run.
	f.define(t, plans.Definition{
		Job:   job.Job{Name: "old", Schedule: "@hourly", From: at("2026-01-01T00:00:00Z"), Until: at("2026-01-18T04:00:00Z")},
		Since: at("2025-12-01T00:00:00Z"), Paused: true, Pauses: []plans.Window{{From: at("2025-12-24T00:00:00Z")}}, Owner: "file", Node: "web1",
	})
	for _, output := range []string{"text", "json"} {
		say("job", "pause", "report", "-o", output)
		say("job", "pause", "report", "-o", output)
		say("job", "resume", "report", "--dry-run", "-o", output)
		say("job", "resume", "report", "-o", output)
		say("job", "resume", "report", "-o", output)
		say("job", "resume", "old", "--dry-run", "-o", output)
	}
	say("job", "resume", "old")
	golden(t, "job_pause.txt", said.String())
	f.run(t, "job", "pause", "missing").oneError(t, base.ExitFailed, "no job named missing", "cronce job ls")
}

// What fell due in the last seconds is within the horizon: the policy's newest
// slot runs.
func TestJobResumeSaysWhatTheCatchUpRuns(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	f.define(t, plans.Definition{
		Job: job.Job{Name: "tick", Schedule: "@every 1s"}, Since: time.Now().Add(-time.Hour), Paused: true,
		Pauses: []plans.Window{{From: time.Now().Add(-10 * time.Minute)}}, Owner: "file", Node: "web1",
	})
	if got := f.ok(t, "job", "resume", "tick", "--dry-run"); !strings.Contains(got, " missed; with policy latest, 1 will run") {
		t.Errorf("prints %s", got)
	}
	if got := f.ok(t, "job", "resume", "tick"); !strings.HasSuffix(got, " missed; with policy latest, 1 will run\nresumed tick\n") {
		t.Errorf("prints %s", got)
	}
}
