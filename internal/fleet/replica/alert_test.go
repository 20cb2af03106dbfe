package replica_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A message of a slot that ended long ago arrives, as from a queue that had no worker for a day. The
// stream of events has forgotten the message ID of its alert.
func TestAnAlertOfLongAgoIsStoredOnceHoweverOftenItsSlotIsDelivered(t *testing.T) {
	s := newSite(t)
	store := kvtest.Open(t, s.srv.JetStream(), kv.Options{Want: job.Settings{Lease: s.lease}})
	ended := func(instant time.Time) (job.Record, uint64) {
		rec := job.Record{
			Slot: job.NewSlot("report", instant), Queue: "default", State: job.Failed, Attempt: 1, Node: "before-1-1-x", Nonce: "n",
			Finished: instant.Add(time.Second).UTC(), Published: instant.UTC(), Error: "no",
		}
		revision, err := store.Ledger().Write(t.Context(), rec, 0)
		if err != nil {
			t.Fatal(err)
		}
		return rec, revision
	}
	alert := func(rec job.Record, revision uint64) {
		if err := store.Alert(t.Context(), exchange.NewAlert(rec, revision, job.Failed), exchange.AlertID(rec, revision, job.Failed)); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.srv.JetStream().Stream(t.Context(), store.EventStream())
	if err != nil {
		t.Fatal(err)
	}
	cfg := events.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond
	if _, err := s.srv.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	alerted, revision := ended(time.Now().Add(-time.Hour))
	alert(alerted, revision)
	reopened, revision := ended(time.Now().Add(-2 * time.Hour)) // its alert is that of an earlier outcome
	alert(reopened, revision-1)
	natstest.Eventually(t, "the stream to forget the message IDs", func() bool {
		ack, err := s.srv.JetStream().Publish(t.Context(), store.EventSubject("alert", "other"), []byte("{}"), jetstream.WithMsgID("other"))
		return err == nil && !ack.Duplicate && ack.Sequence > 3
	})
	for _, rec := range []job.Record{alerted, reopened} {
		if _, err := store.Slots().Put(t.Context(), "default", core.Message{Slot: rec.Slot, Node: "p", JobRevision: 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) {
		c.Produce = false
		c.Jobs[0].OnFailure = &job.Alert{NATS: &job.AlertNATS{Subject: "alerts"}}
	})
	natstest.Eventually(t, "that both messages are acked", func() bool {
		stream, err := s.srv.JetStream().Stream(t.Context(), "cronce_slots")
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
	n := map[string]int{}
	for e, err := range store.Events(t.Context(), kv.EventFilter{Kind: job.EventAlert}) {
		if err == nil {
			n[e.ID]++
		}
	}
	if n[alerted.Slot.ID()] != 1 || n[reopened.Slot.ID()] != 2 {
		t.Errorf("stored %v: want one alert for each outcome", n)
	}
}
