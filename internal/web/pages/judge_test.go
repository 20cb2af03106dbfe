package pages

import (
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/job"
)

func TestHeadlineIsTheWorstThatIsKnown(t *testing.T) {
	t.Parallel()
	ready := func(v verdict) board.Result[verdict] { return board.Result[verdict]{Value: v, Ready: true} }
	failing := []jobRun{{Job: board.Job{JobRow: client.JobRow{Job: "report"}}}}
	for _, tc := range []struct {
		page            nowPage
		level, headline string
	}{
		{nowPage{Alive: 1}, "", "Nothing seems wrong. The first checks have not ended."},
		{nowPage{Alive: 1, Verdict: ready(verdict{})}, "good", "All is well."},
		{nowPage{Alive: 1, Verdict: ready(verdict{Warnings: 2})}, "warning", "The doctor found 2 warnings."},
		{nowPage{Alive: 1, Failing: failing}, "bad", "1 job is failing."},
		{nowPage{Verdict: ready(verdict{Problems: 1, Errors: 3, Warnings: 1}), Failing: failing}, "bad",
			"No node runs, 1 job is failing, 1 slot of the last day is not accounted for, the doctor found 3 errors, the doctor found 1 warning."},
	} {
		tc.page.judge()
		if tc.page.Level != tc.level || tc.page.Headline != tc.headline {
			t.Errorf("%s %q, want %s %q", tc.page.Level, tc.page.Headline, tc.level, tc.headline)
		}
	}
}

func TestAJobIsFailingUntilASlotSucceeds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		states []job.State // oldest first
		want   bool
	}{
		{nil, false},
		{[]job.State{job.Succeeded, job.Failed}, true},
		{[]job.State{job.Failed, job.Skipped, job.Cancelled, job.Running}, true},
		{[]job.State{job.Expired, job.Missed}, true},
		{[]job.State{job.Failed, job.Succeeded, job.Skipped}, false},
	} {
		runs := codec.Map(tc.states, func(s job.State) board.Run { return board.Run{State: s} })
		if _, got := (board.Job{Recent: runs}).Failing(); got != tc.want {
			t.Errorf("%v: failing is %v", tc.states, got)
		}
	}
}
