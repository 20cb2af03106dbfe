package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// What starts a job that has no schedule is shown wherever a schedule is.
func TestAJobWithoutAScheduleShowsWhatStartsIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "extract", Schedule: "@hourly"}})
	f.define(t, plans.Definition{Job: job.Job{Name: "load", After: []string{"extract", "check"}}})
	f.define(t, plans.Definition{Job: job.Job{Name: "charge", On: job.On{Stream: "ORDERS", Subject: "orders.paid"}}})
	f.define(t, plans.Definition{Job: job.Job{Name: "import", Schedule: job.OnDemand}})
	for _, c := range []struct{ args, want string }{
		{"job ls", "import   when triggered"},
		{"job ls -o json", `{"job":"import","schedule":"none",`},
		{"job show import", "next                 when triggered"},
		{"job show import --file", `schedule: "none"`},
		{"job next import", "no slots"},
		{"slot explain import:@k", "Job import was not triggered with this token"},
		{"slot explain import:2026-11-21T07:00:00Z", "The job has no schedule, and so no slots at instants: it starts when triggered."},
		{"job ls", "after extract, check"},
		{"job ls", "on ORDERS orders.paid"},
		{"job ls -o json", `"schedule":"","after":["extract","check"],"timezone"`},
		{"job ls -o json", `"on":{"stream":"ORDERS","subject":"orders.paid"}`},
		{"job show load", "after extract, check, for slots after"},
		{"job show charge", "next                 on ORDERS orders.paid"},
		{"job show load --file", `after: ["extract","check"]`},
	} {
		if out := f.run(t, strings.Fields(c.args)...).stdout; !strings.Contains(out, c.want) {
			t.Errorf("cronce %s says\n%s\nwant %q in it", c.args, out, c.want)
		}
	}
	f.run(t, "job", "backfill", "load", "--from", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)).
		oneError(t, base.ExitUsage, "load has no schedule", "after extract, check")
	f.run(t, "job", "backfill", "import", "--from", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)).
		oneError(t, base.ExitUsage, "import has no schedule", "when triggered")
}

func TestExplainSaysWhatASlotWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"extract", "check"} {
		f.define(t, plans.Definition{Job: job.Job{Name: name, Schedule: "@hourly"}})
	}
	f.define(t, plans.Definition{Job: job.Job{Name: "load", After: []string{"extract", "check"}}})
	at := time.Now().Truncate(time.Hour)
	says := func(s job.Slot, want ...string) {
		t.Helper()
		out := f.run(t, "slot", "explain", s.ID()).stdout
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("it says\n%s\nwant %q in it", out, w)
			}
		}
	}
	load, extract, check := job.NewSlot("load", at), job.NewSlot("extract", at), job.NewSlot("check", at)
	says(load, "comes after extract, check", "There is no record of "+extract.ID())
	f.record(t, job.Record{Slot: extract, Queue: "default", Node: "w1", Finished: time.Now()}, job.Succeeded)
	f.record(t, job.Record{Slot: check, Queue: "default", Node: "w1", Finished: time.Now(), Error: "boom"}, job.Failed)
	says(load, extract.ID()+" succeeded", check.ID()+" failed, so this slot is not published: boom")
	f.publish(t, "default", core.Message{Slot: load, Chained: true, Due: time.Now(), Node: "w1"})
	says(load, "due: extract, check had succeeded", "published by w1, since the jobs that it comes after have succeeded")
	says(job.Slot{Job: "load", Token: "x"}, "There is no record of extract:@x")
}

// A file made by job show --file of a job on demand is applied as the same job.
func TestAJobOnDemandIsShownAndAppliedUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "import", Schedule: job.OnDemand, Retry: job.Retry{Attempts: 5}}})
	dir := t.TempDir()
	path, whole := filepath.Join(dir, "import.yaml"), filepath.Join(dir, "whole.yaml")
	for name, text := range map[string]string{
		path:  f.ok(t, "job", "show", "import", "--file"),
		whole: "version: 1\njobs: [{name: import, schedule: none, action: {exec: [/bin/true]}}]\n",
	} {
		filetest.Write(t, name, text)
	}
	if out := f.run(t, "job", "apply", "-f", path).stdout; !strings.Contains(out, "unchanged") {
		t.Errorf("got %q", out)
	}
	if out := f.ok(t, "check", "-o", "json", whole); !strings.Contains(out, `"schedule":"none"`) || !strings.Contains(out, `"next":[]`) {
		t.Errorf("got %q", out)
	}
}

// The worker of extract died after it wrote the outcome and before it published load. No
// sweep has run since.
func TestVerifyOffersWhatShouldHaveFollowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	began := time.Now().Add(-time.Hour).UTC()
	for _, d := range []plans.Definition{
		{Job: job.Job{Name: "extract", Schedule: "@at 2020-01-01T00:00:00Z"}, Since: began},
		{Job: job.Job{Name: "load", After: []string{"extract"}, Payload: []byte(`{"n":1}`)}, Since: began},
	} {
		d.Owner, d.Node = "file", "web1"
		f.define(t, d)
	}
	extract := job.NewSlot("extract", began.Add(30*time.Minute))
	f.record(t, job.Record{Slot: extract, Queue: "default", Published: extract.At, Finished: extract.At.Add(time.Second), Node: "w1"}, job.Succeeded)
	load := extract
	load.Job = "load"
	for _, args := range [][]string{nil, {"--job", "load"}} {
		if code, slots := f.verify(t, args...); code != base.ExitFound || len(slots) != 1 || !strings.Contains(slots[0], load.ID()) {
			t.Errorf("verify %q: status %d, %q; want %s", args, code, slots, load)
		}
	}
	f.verify(t, "--repair")
	waiting := f.waitingOf(t)[load.ID()]
	if len(waiting) != 1 || !waiting[0].Chained || string(waiting[0].Payload) != `{"n":1}` {
		t.Fatalf("in the stream %+v", waiting)
	}
	if code, slots := f.verify(t); code != base.ExitDone {
		t.Errorf("then: status %d, %q", code, slots)
	}
}
