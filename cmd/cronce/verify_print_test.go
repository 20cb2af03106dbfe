package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/job"
)

func TestVerifyOfANewFleetReadsAsAllIsWell(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.define(t, job.Definition{Job: job.Job{Name: "report", Schedule: "@yearly"}})
	out := f.ok(t, "verify")
	if !strings.Contains(out, "all is well") || strings.Contains(out, "not judged") || !strings.Contains(out, "nothing due  before the job had a plan that is known: report") {
		t.Errorf("got\n%s", out)
	}
}

func TestHistogramSaysThatItIsNotCumulative(t *testing.T) {
	t.Parallel()
	got := bars([]verify.Bucket{{Up: 10 * time.Millisecond, Slots: 3}, {Up: 250 * time.Millisecond}, {Up: time.Second, Slots: 24}, {Slots: 1}})
	if want := "3 in 0 to 10ms, 24 in 250ms to 1s, 1 over 1s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
