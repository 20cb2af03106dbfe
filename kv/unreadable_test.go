package kv_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A value that has changed since it was read is not removed. A writer that was suspended
// cannot overwrite the marker that replaced a removed value.
func TestAValueThatCannotBeReadIsRemovedAtItsRevision(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store := open(t, js, kv.Options{})
	ledger, err := js.KeyValue(t.Context(), "cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	slot := job.NewSlot("report", time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC))
	find := func() *kv.UnreadableError {
		t.Helper()
		_, _, err := store.Ledger().Read(t.Context(), slot)
		var e *kv.UnreadableError
		if !errors.As(err, &e) || e.Key != slot.Key() || e.Job() != "report" {
			t.Fatalf("%v is no *kv.UnreadableError of the key", err)
		}
		return e
	}
	put := func() {
		t.Helper()
		if _, err := ledger.PutString(t.Context(), slot.Key(), "broken"); err != nil {
			t.Fatal(err)
		}
	}
	put()
	old := find()
	put()
	if err := store.RemoveUnreadable(t.Context(), old); !errors.Is(err, job.ErrConflict) {
		t.Errorf("a value that has changed: %v", err)
	}
	now := find()
	if err := store.RemoveUnreadable(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	_, revision, err := store.Ledger().Read(t.Context(), slot)
	if !errors.Is(err, job.ErrNotFound) || revision <= now.Revision {
		t.Errorf("after it: %v, at revision %d", err, revision)
	}
	r := job.Record{Slot: slot, Queue: "default", State: job.Running, Node: "a", Nonce: "n"}
	if _, err := store.Ledger().Write(t.Context(), r, now.Revision); !errors.Is(err, job.ErrConflict) {
		t.Errorf("a writer that slept: %v", err)
	}
	if _, err := store.Ledger().Write(t.Context(), r, revision); err != nil {
		t.Errorf("a writer that reads: %v", err)
	}
}
