package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestTriggerManyTellsTheResultOfEach(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	s.record(t, job.Slot{Job: "report", Token: "done"}, job.Succeeded)
	at := time.Now().Add(time.Hour).UTC()
	s.trigger(t, order{Job: "report", Key: "later", At: at})
	s.trigger(t, order{Job: "report", Key: "there"})

	orders := []client.TriggerOptions{
		{Key: "new", Payload: json.RawMessage(`{"n":1}`)}, {Key: "done"}, {Key: "later"}, {Key: "there"}, {}, {Key: "timer", At: at},
	}
	got, err := s.TriggerMany(t.Context(), "report", orders)
	if err != nil || len(got) != len(orders) {
		t.Fatalf("%d results, %v", len(got), err)
	}
	for i, want := range []struct {
		New   bool
		State job.State
		Due   time.Time
	}{
		{true, job.Pending, time.Time{}}, {false, job.Succeeded, time.Time{}}, {false, job.Pending, at},
		{false, job.Pending, time.Time{}}, {true, job.Pending, time.Time{}}, {true, job.Pending, at},
	} {
		r := got[i]
		if r.Err != nil || r.New != want.New || r.State != want.State || !r.Due.Equal(want.Due) || r.Slot.Token == "" || orders[i].Key != "" && r.Slot.Token != orders[i].Key {
			t.Errorf("%+v: %+v, want %+v", orders[i], r, want)
		}
	}
	if n := len(s.waiting(t)); n != 5 {
		t.Errorf("%d messages and timers, want 5", n)
	}
	again, err := s.TriggerMany(t.Context(), "report", orders[:4])
	for _, r := range again {
		if err != nil || r.New {
			t.Errorf("again: %+v, %v", r, err)
		}
	}
}

func TestTriggerManyKeepsTheFirstOfSeveralOrdersWithOneKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "charge", Schedule: job.OnDemand}})
	got, err := s.TriggerMany(t.Context(), "charge", []client.TriggerOptions{
		{Key: "k", Payload: json.RawMessage(`1`)}, {Key: "other"}, {Key: "k", Payload: json.RawMessage(`2`)}, {Key: "k", Payload: json.RawMessage(`3`)},
	})
	if err != nil || len(got) != 4 {
		t.Fatal(got, err)
	}
	for i, isNew := range []bool{true, true, false, false} {
		if got[i].New != isNew {
			t.Errorf("order %d: new %t", i, got[i].New)
		}
	}
	if payload, err := got[3].Payload(t.Context()); err != nil || string(payload) != "1" {
		t.Errorf("payload %s, %v", payload, err)
	}
	if n := len(s.waiting(t)); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestTriggerManyOrdersNothingWhenOneOrderIsInvalid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	got, err := s.TriggerMany(t.Context(), "report", []client.TriggerOptions{{Key: "a"}, {Payload: json.RawMessage("{")}})
	if !errors.Is(err, job.ErrInvalid) || got != nil {
		t.Errorf("%v, %v; want invalid", got, err)
	}
	if _, err := s.TriggerMany(t.Context(), "other", []client.TriggerOptions{{}}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
	if all := s.waiting(t); len(all) != 0 {
		t.Errorf("waiting: %+v", all)
	}
}

// BenchmarkTriggerMany orders 10,000 runs with a key each.
func BenchmarkTriggerMany(b *testing.B) {
	s := benchSite(b)
	const runs = 10_000
	orders := make([]client.TriggerOptions, runs)
	for n := 0; b.Loop(); n++ {
		for i := range orders {
			orders[i] = client.TriggerOptions{Key: fmt.Sprintf("order-%d-%d", n, i), Payload: json.RawMessage(`{"n":1}`)}
		}
		if _, err := s.TriggerMany(b.Context(), "report", orders); err != nil {
			b.Fatal(err)
		}
	}
}

// movingTimers are timers that change while an order is carried out: the first writes meet a conflict.
type movingTimers struct {
	attach.Timers
	conflicts atomic.Int64
	met       func()
}

func (t *movingTimers) Set(ctx context.Context, timer stream.Timer, revision uint64) (uint64, error) {
	if t.conflicts.Add(-1) >= 0 {
		t.met()
		return 0, job.ErrConflict
	}
	return t.Timers.Set(ctx, timer, revision)
}

func TestTriggerManyCountsARunOnceThatItOrdersAfterAConflict(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	timers := &movingTimers{Timers: s.store.Timers(), met: func() {}}
	timers.conflicts.Store(1)
	at := time.Now().Add(time.Hour)
	got, err := s.withTimers(timers).TriggerMany(t.Context(), "report", []client.TriggerOptions{{Key: "a", At: at}, {Key: "b", At: at}})
	if err != nil || !got[0].New || !got[1].New {
		t.Fatalf("%+v, %v", got, err)
	}
	ordered := func() (all []job.Event) {
		for e, err := range s.Orders(t.Context(), "report", time.Time{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		return all
	}
	natstest.Eventually(t, "the order is kept", func() bool { return slices.ContainsFunc(ordered(), func(e job.Event) bool { return e.Count == 2 }) })
	if all := ordered(); len(all) != 1 {
		t.Errorf("orders: %+v, want one of two runs", all)
	}
}

func TestTriggerManyNamesTheRunOfWhichItKnowsNothingAfterAConflict(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	ctx, cancel := context.WithCancel(t.Context())
	timers := &movingTimers{Timers: s.store.Timers(), met: cancel}
	timers.conflicts.Store(1)
	s.record(t, job.Slot{Job: "report", Token: "done"}, job.Succeeded)
	got, err := s.withTimers(timers).TriggerMany(ctx, "report", []client.TriggerOptions{{Key: "done"}, {Key: "later", At: time.Now().Add(time.Hour)}})
	if err == nil || got[0].Err != nil || got[1].Err == nil || got[1].Slot.Token != "later" {
		t.Errorf("%+v, %v; want the second run with an error", got, err)
	}
}
