package slots

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

func TestLateCountsToTheFirstStart(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	row := client.SlotRow{
		Slot: due, Due: due, State: job.Succeeded, Attempt: 2,
		First: due.Add(2 * time.Second), Started: due.Add(time.Minute), Finished: due.Add(70 * time.Second),
	}
	if got := SlotCells(row); got[3] != "2s" || got[4] != "10s" {
		t.Errorf("late %s, took %s; want 2s, until the first attempt started, and 10s, which the last took", got[3], got[4])
	}
	row.First = time.Time{} // that attempt is not kept
	if got := SlotCells(row); got[3] != "-" {
		t.Errorf("late %s of a slot whose first start is not kept, want -", got[3])
	}
}
