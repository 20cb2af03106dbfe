package kv_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Stamp converts every timestamp that the store returns. A query for what was stored since
// a time takes that time on the converted clock.
func TestTimestampsAreReadByAnotherClock(t *testing.T) {
	t.Parallel()
	const back = 1000 * time.Hour
	began := time.Now().Add(-back).Truncate(time.Second)
	s := open(t, natstest.Run(t).JetStream(), kv.Options{Stamp: func(at time.Time) time.Time { return at.Add(-back) }})
	ctx := t.Context()
	check := func(what string, at time.Time, err error) {
		t.Helper()
		if err != nil || at.Before(began) || at.After(began.Add(time.Hour)) {
			t.Errorf("%s is stamped %v, %v; want about %v", what, at, err, began)
		}
	}
	now, err := s.Time(ctx)
	check("now", now, err)

	if _, err := s.Jobs().Write(ctx, plans.Definition{Job: job.Job{Name: "j", Schedule: "@hourly"}, Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	entry, _, err := s.Jobs().Read(ctx, "j")
	check("a definition", entry.Time, err)
	check("its plan", entry.Since(), err)

	slot := job.NewSlot("j", began)
	if _, err := s.Ledger().Write(ctx, job.Record{Slot: slot, State: job.Running, Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[time.Time]int{began: 1, began.Add(time.Hour): 0} {
		n := 0
		for e, err := range s.Ledger().List(ctx, kv.ListFilter{Since: since}) {
			check("a record", e.Time, err)
			n++
		}
		if n != want {
			t.Errorf("since %v there are %d records, want %d", since, n, want)
		}
	}
	for c, err := range s.Ledger().Changes(ctx, &wire.Cursor{}) {
		check("a change", c.Time, err)
	}

	if _, err := s.Slots().Publish(ctx, "q", core.Message{Slot: slot, Node: "n"}, nil); err != nil {
		t.Fatal(err)
	}
	for w, err := range s.Slots().Waiting(ctx, stream.WaitingFilter{}) {
		check("a message that waits", w.Published, err)
	}
	if _, err := s.Slots().Queue(ctx, "q"); err != nil {
		t.Fatal(err)
	}
	backlog, err := s.Slots().Backlog(ctx, "q", true)
	check("the oldest message of a queue", backlog.Oldest, err)
}
