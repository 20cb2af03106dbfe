package client_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestWrittenSinceSelectsByTheLastWriteAndNotByTheInstant(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	old := job.NewSlot("report", now.Add(-20*time.Hour))
	r := job.Record{Slot: old, State: job.Succeeded, Node: "web1", Nonce: "n", Published: now}
	if _, err := p.store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	var written time.Time
	for e, err := range p.store.Ledger().List(t.Context(), kv.ListFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		written = e.Time
	}
	for _, tc := range []struct {
		since time.Time
		rows  int
	}{{time.Time{}, 1}, {written, 1}, {written.Add(time.Second), 0}} {
		rows := 0
		for s, err := range p.WrittenSince(t.Context(), tc.since) {
			if rows++; err != nil || s.ID != old.ID() {
				t.Errorf("written since %v: %v, %v", tc.since, s, err)
			}
		}
		if rows != tc.rows {
			t.Errorf("written since %v: %d rows, want %d", tc.since, rows, tc.rows)
		}
	}
}

func TestPlannedHasTheSlotsOfAllPlansAndMarksThePaused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	from := time.Now().Truncate(time.Hour).UTC()
	if _, err := p.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "0 * * * *"}}, client.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	d, err := p.Pause(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	d.Definition, err = func() (client.Definition, error) { u, err := p.Next(t.Context(), "report"); return u.Definition, err }()
	if err != nil {
		t.Fatal(err)
	}
	var slots []time.Time
	for at, paused := range d.Planned(from.Add(2*time.Hour), from.Add(5*time.Hour)) {
		if !paused {
			t.Errorf("%v is not in the pause %v", at, d.Pauses)
		}
		slots = append(slots, at)
	}
	if len(slots) != 3 || !slots[0].Equal(from.Add(2*time.Hour)) || !slots[2].Equal(from.Add(4*time.Hour)) {
		t.Errorf("planned: %v, want the first and not the last of the range from %v", slots, from.Add(2*time.Hour))
	}
	for at := range d.Planned(from.Add(-5*time.Hour), from) {
		t.Errorf("%v is before the job's first plan", at)
	}
	for at := range (client.Definition{}).Planned(from, from.Add(time.Hour)) {
		t.Errorf("a definition that cannot be read has the slot %v", at)
	}
}
