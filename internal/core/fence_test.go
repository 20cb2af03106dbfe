package core

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

func TestAlertCarriesTheFenceOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	ended := time.Date(2026, 11, 21, 7, 0, 9, 0, time.UTC)
	r := job.Record{Slot: job.NewSlot("report", ended), State: job.Failed, Finished: ended, Attempts: []job.Attempt{{Number: 1, Fence: 40}, {Number: 2, Fence: 52}}}
	if e := exchange.NewAlert(r, 57, r.State); e.Fence != 52 {
		t.Errorf("fence %d, want that of attempt 2: 52", e.Fence)
	}
	r.State, r.Attempts = job.Expired, nil
	if e := exchange.NewAlert(r, 57, r.State); e.Fence != 57 {
		t.Errorf("fence %d of a slot without attempts, want its record's revision, 57", e.Fence)
	}
}
