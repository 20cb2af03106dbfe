package croncetest_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

func TestSettleWaitsForTheSlotsOfAPauseThatEnded(t *testing.T) {
	t.Parallel()
	f := croncetest.New(t)
	f.Handle(job.Job{Name: "report", Schedule: "@hourly"}, nothing)
	f.Start(2)
	f.Advance(2 * time.Hour)
	if _, err := f.Client().Pause(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	f.Advance(3 * time.Hour)
	if n := len(f.Records("report")); n != 2 {
		t.Fatalf("%d records while the job is paused, want 2", n)
	}
	if _, err := f.Client().Resume(t.Context(), "report", client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Settle()
	if n := len(f.Runs("report")); n != 3 {
		t.Fatalf("%d runs, want 3: two before the pause, and the newest slot of the pause", n)
	}
}
