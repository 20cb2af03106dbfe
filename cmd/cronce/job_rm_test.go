package main

import (
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func TestJobRm(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"report", "backup"} {
		f.define(t, plans.Definition{Job: job.Job{Name: name, Schedule: "@hourly"}, Owner: "file", Node: "web1"})
	}
	if got, want := f.ok(t, "job", "rm", "report"), "removed report\n"; got != want {
		t.Errorf("job rm prints %q, want %q", got, want)
	}
	f.run(t, "job", "rm", "report").oneError(t, base.ExitFailed, "no job named report", "cronce job ls")
	f.run(t, "job", "rm", "bakcup").oneError(t, base.ExitFailed, "no job named bakcup", "backup")
	f.run(t, "job", "rm", "a b").oneError(t, base.ExitUsage, `"a b"`)
	f.run(t, "job", "rm").oneError(t, base.ExitUsage)
	// A command that is repeated after it failed half-way removes the rest.
	r := f.run(t, "job", "rm", "report", "backup", "-o", "json")
	if want := `{"job":"backup","removed":true}` + "\n"; r.stdout != want || r.code != base.ExitFailed {
		t.Errorf("job rm of a job that is gone and of another one: status %d, %q, want %q", r.code, r.stdout, want)
	}
	if got, want := f.ok(t, "job", "ls"), "no jobs\n"; got != want {
		t.Errorf("afterwards job ls prints %q, want %q", got, want)
	}
}
