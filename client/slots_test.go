package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Pages of any size add up to the whole listing. The slots include some with a message and a
// record, triggered ones without an instant, and filters that select only the message or only
// the record.
func TestListSlotsByPagesIsTheWholeListing(t *testing.T) {
	s := newShop(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		slot := job.NewSlot("report", s.at.Add(time.Duration(random.IntN(40))*time.Second))
		if i%5 == 0 {
			slot = job.Slot{Job: "report", Token: fmt.Sprint("token", i)}
		}
		if random.IntN(2) == 0 {
			s.publish(core.Message{Slot: slot, Due: s.at, Node: "web1-1"}, "")
		}
		if random.IntN(2) == 0 {
			s.record(slot, []job.State{job.Running, job.Succeeded, job.Failed}[random.IntN(3)], nil)
		}
	}
	c := s.as("alice@a")
	list := func(f client.SlotFilter) client.SlotList {
		t.Helper()
		l, err := c.ListSlots(t.Context(), f)
		if err != nil || len(l.Unreadable) > 0 {
			t.Fatal(err, l.Unreadable)
		}
		return l
	}
	ids := func(slots []client.SlotRow) (all []string) {
		for _, s := range slots {
			all = append(all, s.ID)
		}
		return all
	}
	for _, f := range []client.SlotFilter{
		{}, {Job: "report"}, {Since: s.at.Add(20 * time.Second)},
		{States: []job.State{job.Pending}}, {States: []job.State{job.Failed, job.Running}}, {States: []job.State{job.Pending, job.Succeeded}},
	} {
		whole := list(f)
		if whole.Next != "" || len(whole.Slots) < 3 {
			t.Fatalf("%+v: %+v", f, whole)
		}
		for _, f.Limit = range []int{1, 2, 3, 7, len(whole.Slots), 1000} {
			var got []string
			for f.After = ""; ; {
				l := list(f)
				if len(l.Slots) > f.Limit || l.Next != "" && l.Next <= f.After {
					t.Fatalf("%+v lists %d, and goes on at %q", f, len(l.Slots), l.Next)
				}
				got = append(got, ids(l.Slots)...)
				if f.After = l.Next; f.After == "" {
					break
				}
			}
			if want := ids(whole.Slots); !slices.Equal(got, want) {
				t.Errorf("%+v: pages list\n%q, want\n%q", f, got, want)
			}
		}
	}
}

// The record was written long before the time of the timer.
func TestListSlotsPlacesACancelledTimerAtItsEnd(t *testing.T) {
	s := newShop(t)
	c, now := s.as("alice@a"), time.Now()
	run := job.Slot{Job: "report", Token: "k"}
	if _, err := c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "k", At: now.Add(48 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cancel(t.Context(), run.ID(), quiet); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[time.Time]int{now.Add(-time.Minute): 1, now.Add(24 * time.Hour): 0} {
		list, err := c.ListSlots(t.Context(), client.SlotFilter{Since: since})
		if err != nil || len(list.Slots) != want {
			t.Errorf("since %v: %+v, %v; want %d", since.Sub(now), list.Slots, err, want)
		}
		// A listing since a time has the same rows as the whole listing from that time on.
		whole, err := c.ListSlots(t.Context(), client.SlotFilter{})
		if later := client.Cursor(since.UTC().Format(time.RFC3339)); err != nil || (whole.Slots[0].Cursor() > later) != (want == 1) {
			t.Errorf("since %v: it stands at %s, %v", since.Sub(now), whole.Slots[0].Cursor(), err)
		}
	}
}

func TestListSlotsRefusesInvalidFilters(t *testing.T) {
	s := newShop(t)
	c := s.as("alice@a")
	for _, f := range []client.SlotFilter{{Job: "a.>"}, {States: []job.State{"done"}}, {Limit: -1}, {After: "x"}, {After: "2026-03-28T08:00:00Z x"}} {
		if _, err := c.ListSlots(t.Context(), f); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, place := range []client.Cursor{"x", "17", "-0000000000000000001"} {
		if _, err := c.Jobs(t.Context(), client.JobFilter{After: place}); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%q: %v", place, err)
		}
		if _, err := c.Nodes(t.Context(), client.NodeFilter{After: place}); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%q: %v", place, err)
		}
	}
}

func TestSlotRowHasItsFirstStartWhileThatAttemptIsKept(t *testing.T) {
	t.Parallel()
	p, slot := newPlace(t, "alice@a"), job.NewSlot("report", now)
	r := job.Record{
		Slot: slot, State: job.Succeeded, Attempt: 2, Node: "web1", Nonce: "n",
		Attempts: []job.Attempt{{Number: 1, Started: now.Add(2 * time.Second)}, {Number: 2, Started: now.Add(time.Minute)}},
	}
	revision := uint64(0)
	for _, want := range []time.Time{r.Attempts[0].Started, {}} {
		var err error
		if revision, err = p.store.Ledger().Write(t.Context(), r, revision); err != nil {
			t.Fatal(err)
		}
		list, err := p.ListSlots(t.Context(), client.SlotFilter{States: []job.State{job.Succeeded}})
		if err != nil || len(list.Slots) != 1 || !list.Slots[0].First.Equal(want) || !list.Slots[0].Started.Equal(now.Add(time.Minute)) {
			t.Errorf("%+v, %v; want the first start at %v", list.Slots, err, want)
		}
		r.Attempts, r.Nonce = r.Attempts[1:], "later" // older attempts are dropped
	}
}

func TestListSlotsEndedSinceIsByTheOutcomeAndNotByThePlan(t *testing.T) {
	s := newShop(t)
	now := time.Now().UTC()
	end := func(name string, ago time.Duration, state job.State) job.Slot {
		slot := job.Slot{Job: "report", Token: name}
		s.record(slot, state, func(r *job.Record) { r.Finished = now.Add(-ago) })
		return slot
	}
	late := job.NewSlot("report", now.Add(-10*time.Hour)) // planned long ago, retried just now
	s.record(late, job.Failed, func(r *job.Record) { r.Finished = now.Add(-time.Minute) })
	recent := end("recent", 30*time.Minute, job.Failed)
	end("old", 2*time.Hour, job.Failed)
	end("well", time.Minute, job.Succeeded)
	s.record(job.Slot{Job: "report", Token: "runs"}, job.Running, nil)
	s.publish(core.Message{Slot: job.Slot{Job: "report", Token: "waits"}}, "")
	for _, f := range []client.SlotFilter{{}, {Limit: 10}, {Limit: 10, Newest: true}} {
		f.States, f.EndedSince = []job.State{job.Failed}, now.Add(-time.Hour)
		list, err := s.as("alice@a").ListSlots(t.Context(), f)
		if err != nil || len(list.Slots) != 2 || list.Slots[0].ID != late.ID() || list.Slots[1].ID != recent.ID() {
			t.Errorf("%+v: %+v, %v", f, list.Slots, err)
		}
		f.States = nil
		if all, err := s.as("alice@a").ListSlots(t.Context(), f); err != nil || len(all.Slots) != 3 {
			t.Errorf("in any state: %+v, %v", all.Slots, err)
		}
	}
}
