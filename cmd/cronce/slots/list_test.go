package slots

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/control"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestLateCountsToTheFirstStart(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	rec := job.Record{
		Slot: job.NewSlot("report", due), Due: due, State: job.Succeeded, Attempt: 2, Finished: due.Add(70 * time.Second),
		Attempts: []job.Attempt{{Number: 1, Started: due.Add(2 * time.Second)}, {Number: 2, Started: due.Add(time.Minute)}},
	}
	cells := func() []string { return SlotCells(control.RecordedSlot(kv.LedgerEntry{Record: rec})) }
	if got := cells(); got[3] != "2s" || got[4] != "10s" {
		t.Errorf("late %s, took %s; want 2s, until the first attempt started, and 10s, which the last took", got[3], got[4])
	}
	rec.Attempts = rec.Attempts[1:] // the older ones are not kept
	if got := cells(); got[3] != "-" {
		t.Errorf("late %s of a slot whose first start is not kept, want -", got[3])
	}
}
