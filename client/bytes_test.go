package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// sent returns how many bytes the server sends while f runs.
func (s *site) sent(t *testing.T, f func()) int64 {
	t.Helper()
	count := func() int64 {
		v, err := s.server.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.OutBytes
	}
	before := count()
	f()
	return count() - before
}

// large orders n runs with payloads of 10 kB and the keys 0, 1 and so on.
func (s *site) large(t *testing.T, n int) {
	t.Helper()
	orders := make([]client.TriggerOptions, n)
	for i := range orders {
		orders[i] = client.TriggerOptions{Key: fmt.Sprint(i), Payload: json.RawMessage(`"` + strings.Repeat("x", 10<<10) + `"`)}
	}
	if _, err := s.TriggerMany(t.Context(), "report", orders); err != nil {
		t.Fatal(err)
	}
}

// With 10,000 waiting runs of 10 kB, each keyed order read 98 MB.
func TestAKeyedOrderReadsABoundedPartOfWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	s.large(t, 1500)
	later := client.Attach(attach.Parts{
		Jobs: s.store.Jobs(), Ledger: s.store.Ledger(), Slots: s.store.Slots(), Timers: s.store.Timers(), Fleet: s.store, News: s.store,
		Settings: s.store.Settings(), Operator: "alice@laptop",
		Now: func(ctx context.Context) (time.Time, error) {
			now, err := s.store.Time(ctx)
			return now.Add(2 * job.DefaultDuplicates), err
		},
	})
	bytes := s.sent(t, func() {
		got, err := later.Trigger(t.Context(), "report", client.TriggerOptions{Key: "1"})
		if err != nil || got.New {
			t.Errorf("%+v, %v; want one that waits", got, err)
		}
	})
	if bytes > 6<<20 {
		t.Errorf("the server sent %d bytes, want at most 6 MiB of 15", bytes)
	}
}

func TestAnOrderAfterAnEditReadsTheOneMessageIntoWhichItFolds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "former"}})
	s.large(t, 300)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "present"}})
	bytes := s.sent(t, func() {
		if got := s.trigger(t, order{Job: "report", Key: "7"}); got.New || got.Queue != "former" {
			t.Errorf("%+v, want a run that waits in the former queue", got)
		}
		many, err := s.TriggerMany(t.Context(), "report", []client.TriggerOptions{{Key: "8"}, {Key: "new"}})
		if err != nil || many[0].New || many[0].Queue != "former" || !many[1].New || many[1].Queue != "present" {
			t.Errorf("%+v, %v", many, err)
		}
	})
	if bytes > 100<<10 {
		t.Errorf("the server sent %d bytes, want those of few messages", bytes)
	}
}

// waitingFleet has many waiting slots, and counts how often they are listed.
type waitingFleet struct {
	attach.Fleet
	n, lists int
}

func (w *waitingFleet) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	w.lists++
	return func(yield func(stream.WaitingSlot, error) bool) {
		for i := range w.n {
			if !yield(stream.WaitingSlot{Message: core.Message{Slot: job.NewSlot("report", now.Add(time.Duration(i)*time.Second))}, Queue: "default"}, nil) {
				return
			}
		}
	}
}

func TestIteratingOverSlotsDoesNotListAllForEachFewOfThem(t *testing.T) {
	t.Parallel()
	fleet := &waitingFleet{n: 200_000}
	c := client.Attach(attach.Parts{Ledger: memstore.New().Ledger(), Fleet: fleet})
	seen := 0
	for _, err := range c.Slots(t.Context(), client.SlotFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
	}
	if seen != fleet.n || fleet.lists > 4 {
		t.Errorf("%d slots in %d listings, want %d in at most 4", seen, fleet.lists, fleet.n)
	}
}
