package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// A slot of a range of missed slots has no record of its own.
func TestASlotOfARangeIsShownAsMissedAndRetryBackfillsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	noon, revision := s.twoPlans(t)
	at := func(hours float64) job.Slot {
		return job.NewSlot("report", noon.Add(time.Duration(hours*float64(time.Hour))))
	}
	missed := job.Slot{Job: "report", At: at(-3).At, Range: true}
	r := job.Record{Slot: missed, State: job.Missed, Node: "n", Nonce: "x", Count: 4, Last: at(0).At}
	if _, err := s.store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	s.record(t, at(-2), job.Succeeded)
	for slot, want := range map[job.Slot]string{at(-3): missed.ID(), at(-2): at(-2).ID(), at(0): missed.ID(), at(-1.5): "", at(0.5): "", at(-4): ""} {
		d, err := s.Slot(t.Context(), slot.ID())
		if d.ID != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s is %s: %v; want %q", slot, d.ID, err, want)
		}
	}
	if d, err := s.Expect(t.Context(), at(-1).ID()); err != nil || d.State != job.Missed || d.Count != 4 {
		t.Errorf("a wait for a slot of the range begins with %+v, %v", d, err)
	}
	done, err := s.Retry(t.Context(), at(-1).ID())
	if err != nil || done.ID != at(-1).ID() || done.State != job.Pending || done.Left != job.DefaultAttempts {
		t.Fatalf("Retry = %+v, %v", done, err)
	}
	want := core.Message{Slot: at(-1), JobRevision: revision, Node: "alice@laptop", Due: at(-1).At, Backfill: true}
	if all := s.waiting(t); len(all) != 1 || all[0].Message != want || string(all[0].Payload) != `{"n":1}` {
		t.Errorf("published %+v, want %+v", all, want)
	}
	if _, err := s.Retry(t.Context(), at(-1).ID()); !errors.Is(err, job.ErrConflict) || !strings.Contains(err.Error(), "waits") {
		t.Errorf("a second Retry = %v", err)
	}
	if _, err := s.Retry(t.Context(), at(-1.5).ID()); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("Retry of no slot = %v", err)
	}
	old := job.Slot{Job: "report", At: at(-30).At, Range: true}
	if _, err := s.store.Ledger().Write(t.Context(), job.Record{Slot: old, State: job.Missed, Node: "n", Nonce: "x", Count: 2, Last: at(-29).At}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Retry(t.Context(), at(-30).ID()); !errors.Is(err, job.ErrConflict) || !strings.Contains(err.Error(), "horizon") {
		t.Errorf("Retry of a slot that is too old = %v", err)
	}
}
