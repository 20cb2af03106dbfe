package main

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

func TestVerifyOfANewFleetReadsAsAllIsWell(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@yearly"}})
	out := f.ok(t, "verify")
	if !strings.Contains(out, "all is well") || strings.Contains(out, "not judged") || !strings.Contains(out, "nothing due  before the job had a plan that is known: report") {
		t.Errorf("got\n%s", out)
	}
}
