package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/producer"
)

// stale is a registry whose watch delivers nothing after still is closed.
type stale struct {
	producer.Registry
	still chan struct{}
}

func (s stale) Watch(ctx context.Context, fn func(plans.RegistryEvent)) error {
	return s.Registry.Watch(ctx, func(ev plans.RegistryEvent) {
		select {
		case <-s.still:
		default:
			fn(ev)
		}
	})
}

// wall is the clock of producers on the server's own machine.
type wall struct{}

func (wall) Now() time.Time       { return time.Now() }
func (wall) Error() time.Duration { return 0 }
func (wall) Plausible() error     { return nil }

// staleProducer starts a producer that knows the registry as it is now, and no later edit.
func (s *site) staleProducer(store *kv.Store, name string) {
	s.Helper()
	still := make(chan struct{})
	p, err := producer.New(producer.Config{
		Node: name, Registry: stale{store.Jobs(), still}, Watermark: store.Watermark(), Slots: store.Slots(), Clock: wall{},
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var ending sync.WaitGroup
	ending.Go(func() {
		if err := p.Run(ctx); err != nil {
			s.Errorf("%s: %v", name, err)
		}
	})
	s.Cleanup(func() { stop(); ending.Wait() })
	natstest.Eventually(s.T, name+" to publish", func() bool { return p.Stats().Published > 0 })
	close(still)
}

// edit writes the definition that f returns for the job's entry, which is nil if there is none, and
// returns the new entry. If f is nil, it removes the job.
func (s *site) edit(store *kv.Store, f func(*plans.Entry) (plans.Definition, bool)) *plans.Entry {
	s.Helper()
	old, revision, err := store.Jobs().Read(s.Context(), "report")
	entry := &old
	if errors.Is(err, job.ErrNotFound) {
		entry, err = nil, nil
	}
	if err != nil {
		s.Fatal(err)
	}
	if f == nil {
		if err := store.Jobs().Delete(s.Context(), "report", revision); err != nil {
			s.Fatal(err)
		}
		return nil
	}
	d, changed := f(entry)
	if !changed {
		s.Fatal("the edit changes nothing")
	}
	d.Nonce = fmt.Sprint("edit ", revision)
	if _, err := store.Jobs().Write(s.Context(), d, revision); err != nil {
		s.Fatal(err)
	}
	e, _, err := store.Jobs().Read(s.Context(), "report")
	if err != nil {
		s.Fatal(err)
	}
	return &e
}

// instants returns the slots of the entry up to a time, and those of them that are in a pause.
func instants(t *testing.T, e plans.Entry, until time.Time) (planned, paused map[time.Time]bool) {
	t.Helper()
	planned, paused = map[time.Time]bool{}, map[time.Time]bool{}
	for _, p := range e.Plans() {
		schedule, err := job.ParseSchedule("report", p.Plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range e.Stretches(p, schedule) {
			end := until
			if !part.Until.IsZero() && part.Until.Before(end) {
				end = part.Until
			}
			for at := range schedule.Between(part.After, end) {
				planned[at] = true
				if part.Paused {
					paused[at] = true
				}
			}
		}
	}
	return planned, paused
}

// Some producers do not know the last edits, and publish slots of old plans. Each slot of the plans in
// force gets its outcome, and no other slot runs.
func TestSlotsOfOldPlansDoNotRun(t *testing.T) {
	s := newSite(t)
	var mu sync.Mutex
	ran := map[time.Time]int{}
	nc, _, _ := s.replica(func(_ context.Context, run job.Run) error {
		mu.Lock()
		defer mu.Unlock()
		ran[run.Slot.At]++
		return nil
	}, func(c *replica.Config) {
		// On a slow machine a slot may still be in the way of the next one.
		c.Jobs[0].CatchUp.Policy, c.Jobs[0].Overlap = job.CatchUpAll, job.OverlapAllow
	})
	store := kvtest.Open(t, natstest.JetStream(t, nc), kv.Options{})
	reschedule := func(schedule string) func(*plans.Entry) (plans.Definition, bool) {
		return func(old *plans.Entry) (plans.Definition, bool) {
			j := job.Job{Name: "report", Schedule: schedule, CatchUp: job.CatchUp{Policy: job.CatchUpAll}, Overlap: job.OverlapAllow}
			d, change, err := plans.Upsert(old, j, "operator", "test", true)
			if err != nil {
				t.Fatal(err)
			}
			return d, change == plans.Changed
		}
	}
	// some waits for a slot that is due in about two seconds. The first stale producer publishes one
	// each second.
	some := func() {
		t.Helper()
		slot := job.NewSlot("report", time.Now().Add(2*time.Second).Truncate(time.Second))
		natstest.Eventually(t, "the end of "+slot.ID(), func() bool {
			_, _, err := store.Ledger().Read(t.Context(), slot)
			return err == nil
		})
	}
	s.staleProducer(store, "stale1")
	s.edit(store, reschedule("*/2 * * * * *"))
	s.staleProducer(store, "stale2")
	some()
	s.edit(store, func(e *plans.Entry) (plans.Definition, bool) { return plans.Pause(*e, "test") })
	some()
	s.edit(store, func(e *plans.Entry) (plans.Definition, bool) { return plans.Resume(*e, "test") })
	some()
	first, _, err := store.Jobs().Read(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	s.edit(store, nil)
	removed := time.Now()
	some()
	second := s.edit(store, reschedule("*/3 * * * * *"))
	some()
	some()
	end := time.Now().Add(-time.Second)

	planned, paused := instants(t, first, removed)
	again, _ := instants(t, *second, end)
	for at := range again {
		planned[at] = true
	}
	natstest.Eventually(t, "an outcome for each slot", func() bool {
		for at := range planned {
			r, _, err := store.Ledger().Read(t.Context(), job.NewSlot("report", at))
			if err != nil || !r.State.Final() {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	for at, n := range ran {
		// The local clock at the removal differs a little from the broker's timestamp.
		if near := at.Sub(removed).Abs() < time.Second; n > 1 || !planned[at] && !near && at.Before(end) {
			t.Errorf("%s ran %d times; planned: %v", at, n, planned[at])
		}
	}
	outcomes := map[job.State]int{}
	for at := range planned {
		r, _, err := store.Ledger().Read(t.Context(), job.NewSlot("report", at))
		if err != nil {
			t.Fatal(err)
		}
		outcomes[r.State]++
		near := at.Sub(removed).Abs() < time.Second
		if want := r.State == job.Succeeded || r.State == job.Missed && paused[at] || r.State == job.Cancelled && near; !want {
			out, _ := json.Marshal(r)
			t.Errorf("%s is %s: %s", at, r.State, out)
		}
	}
	var cancelled int
	for entry, err := range store.Ledger().List(t.Context(), kv.ListFilter{Job: "report"}) {
		if err == nil && entry.Record.State == job.Cancelled {
			cancelled++
		}
	}
	if cancelled == 0 || outcomes[job.Missed] == 0 {
		t.Errorf("%d slots of old plans were cancelled, %v: the stale producers published none", cancelled, outcomes)
	}
}
