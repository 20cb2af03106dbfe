package job

import (
	"testing"
	"time"
)

func TestAlertCarriesTheFenceOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	ended := time.Date(2026, 11, 21, 7, 0, 9, 0, time.UTC)
	r := Record{Slot: NewSlot("report", ended), State: Failed, Finished: ended, Attempts: []Attempt{{Number: 1, Fence: 40}, {Number: 2, Fence: 52}}}
	if e := NewAlert(r, 57); e.Fence != 52 {
		t.Errorf("fence %d, want that of attempt 2: 52", e.Fence)
	}
	r.State, r.Attempts = Expired, nil
	if e := NewAlert(r, 57); e.Fence != 57 {
		t.Errorf("fence %d of a slot without attempts, want its record's revision, 57", e.Fence)
	}
}
