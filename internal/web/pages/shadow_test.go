package pages_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

func TestPagesMarkAShadow(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	slot := job.NewSlot("report", a.base.Add(time.Hour))
	a.record(t, job.Record{
		Slot: slot, State: job.Succeeded, Due: slot.At, Published: slot.At, Attempt: 1, Shadow: 1, Node: "web2-1", Queue: "default", Finished: slot.At.Add(time.Second),
		Attempts: []job.Attempt{{Number: 1, Node: "web2-1", Fence: 21, Started: slot.At, Finished: slot.At.Add(time.Second)}},
	})
	for path, want := range map[string]string{
		"slots/" + slot.ID():         "Shadow The job's action did not run",
		"slots?job=report&range=day": "succeeded shadow",
		"jobs/report":                "succeeded shadow",
	} {
		status, _, text := a.whole(t, path)
		if status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d, want %q in %s", path, status, want, text)
		}
	}
	if _, _, text := a.get(t, "slots/"+slot.ID()); !strings.Contains(text, "It was a shadow: the job's action did not run.") {
		t.Errorf("the story: %s", text)
	}
	if _, _, text := a.get(t, "slots/"+job.NewSlot("report", a.base).ID()); strings.Contains(text, "hadow") {
		t.Errorf("a slot that ran: %s", text)
	}
}

// The script of the pages splits data-live at spaces.
func TestPagesTakeNoIntervalFromTheNameOfAJob(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for _, path := range []string{"activity", "slots"} {
		if status, markup, _ := a.get(t, path+"?job=x+every:1"); status != 400 || strings.Contains(markup, `data-live="job:`) {
			t.Errorf("%s: %d %s", path, status, markup)
		}
		if status, markup, _ := a.get(t, path+"?job=report"); status != 200 || !strings.Contains(markup, `data-live="job:report`) {
			t.Errorf("%s: %d %s", path, status, markup)
		}
	}
}
