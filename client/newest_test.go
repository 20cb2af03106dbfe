package client_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// countedSlots counts the messages that are read, and countedLedger the records.
type countedSlots struct {
	attach.Slots
	read int
}

func (s *countedSlots) Waiting(ctx context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return counted(s.Slots.Waiting(ctx, f), &s.read)
}

type countedLedger struct {
	attach.Ledger
	read int
}

func (l *countedLedger) Newest(ctx context.Context, name string) iter.Seq2[kv.LedgerEntry, error] {
	return counted(l.Ledger.Newest(ctx, name), &l.read)
}

func counted[T any](values iter.Seq2[T, error], n *int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for value, err := range values {
			if *n++; !yield(value, err) {
				return
			}
		}
	}
}

// Of 3000 messages, those of the newest 100 slots are of running ones.
func TestNewestWaitingSlotsAreFoundWithoutReadingAllThatWait(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const all, running = 3000, 100
	first := time.Now().UTC().Truncate(time.Second).Add(-all * time.Second)
	slot := func(i int) job.Slot { return job.NewSlot("report", first.Add(time.Duration(i)*time.Second)) }
	for i := range all {
		if _, err := s.store.Slots().Publish(t.Context(), "default", core.Message{Slot: slot(i), Node: "n", Due: slot(i).At}, nil); err != nil {
			t.Fatal(err)
		}
		if i >= all-running {
			s.record(t, slot(i), job.Running)
		}
	}
	slots, ledger := &countedSlots{Slots: s.store.Slots()}, &countedLedger{Ledger: s.store.Ledger()}
	c := client.Attach(attach.Parts{Ledger: ledger, Slots: slots, Timers: s.store.Timers(), Now: s.store.Time})
	for _, of := range []string{"", "report"} {
		slots.read, ledger.read = 0, 0
		list, err := c.ListSlots(t.Context(), client.SlotFilter{Job: of, Limit: 5, Newest: true})
		if err != nil || len(list.Slots) != 5 || list.Slots[4].ID != slot(all-1).ID() || list.Slots[4].State != job.Running {
			t.Errorf("the newest slots of %q: %+v, %v", of, list.Slots, err)
		}
		list, err = c.ListSlots(t.Context(), client.SlotFilter{Job: of, States: []job.State{job.Pending}, Limit: 5, Newest: true})
		if err != nil || len(list.Slots) != 5 || list.Slots[4].ID != slot(all-running-1).ID() || list.Slots[0].ID != slot(all-running-5).ID() {
			t.Errorf("the newest pending slots of %q: %+v, %v", of, list.Slots, err)
		}
		if slots.read > 300 || ledger.read > 100 {
			t.Errorf("of %q, %d messages and %d records were read", of, slots.read, ledger.read)
		}
	}
}

// The run that is to start last was ordered first.
func TestNewestSlotsHaveTheRunsThatStartLast(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	now := time.Now().UTC().Truncate(time.Second)
	for i := range 100 {
		s.trigger(t, order{Job: "report", Key: fmt.Sprint("later-", i), At: now.Add(time.Hour - time.Duration(i)*time.Second)})
	}
	s.trigger(t, order{Job: "report", Key: "now"})
	list, err := s.ListSlots(t.Context(), client.SlotFilter{Limit: 2, Newest: true})
	if err != nil || len(list.Slots) != 2 || list.Slots[1].ID != "report:@later-0" || list.Slots[0].ID != "report:@later-1" {
		t.Errorf("%+v, %v", list.Slots, err)
	}
	s.record(t, job.Slot{Job: "report", Token: "later-0"}, job.Cancelled) // by a client that ended before it removed the timer
	list, err = s.ListSlots(t.Context(), client.SlotFilter{Limit: 1, Newest: true, States: []job.State{job.Pending}})
	if err != nil || len(list.Slots) != 1 || list.Slots[0].ID != "report:@later-1" {
		t.Errorf("after a cancellation: %+v, %v", list.Slots, err)
	}
}
