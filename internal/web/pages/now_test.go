package pages_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestNowSaysWhatIsWrongAndWhatIsNext(t *testing.T) {
	t.Parallel()
	a := newJobs(t) // daily is paused
	slot := job.NewSlot("report", a.base.Add(time.Hour))
	a.record(t, job.Record{
		Slot: slot, State: job.Failed, Due: slot.At, Published: slot.At, Attempt: 1, Node: "web2-1", Queue: "default", Finished: slot.At.Add(time.Second), Error: hostile,
		Attempts: []job.Attempt{{Number: 1, Node: "web2-1", Fence: 30, Started: slot.At, Finished: slot.At.Add(time.Second), Error: hostile}},
	})
	var markup, text string
	natstest.Eventually(t, "the first check", func() bool {
		var status int
		status, markup, text = a.get(t, "")
		return status == 200 && strings.Contains(text, "were checked")
	})
	for _, want := range []string{
		"1 job is failing", "3 jobs, 1 paused, 3 without handler", "1 failing in the last day", "2 nodes alive",
		"Failed, and not succeeded since report failed", "<script>alert(1)</script>", "Nothing is running.", "Next report",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	for _, want := range []string{`class="verdict v-bad"`, `href="./slots/` + slot.ID() + `"`, `aria-label="in the last hour: nothing; next at `} {
		if !strings.Contains(markup, want) {
			t.Errorf("the page does not have %s: %s", want, markup)
		}
	}
	if strings.Contains(markup, `href="./jobs/daily"`) {
		t.Error("a paused job is among the next ones")
	}
}

// The parts that do not depend on the time of day are compared as a whole.
func TestPagesOfTheFleetSayWhatIsWritten(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	for name, path := range map[string]string{
		"nodes": "nodes", "activity": "activity", "activity-orders": "activity?kind=orders&job=daily", "slots": "slots?state=failed",
		"schedule-wrong": "schedule?spec=61+*+*+*+*",
	} {
		if status, markup, text := a.get(t, path); status != 200 && name != "schedule-wrong" {
			t.Errorf("%s: %d: %s", path, status, markup)
		} else {
			golden(t, name, text)
		}
	}
}
