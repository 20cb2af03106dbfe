package replica_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
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
	forget := s.forgetful(store)
	alerted, revision := ended(time.Now().Add(-time.Hour))
	alert(alerted, revision)
	reopened, revision := ended(time.Now().Add(-2 * time.Hour)) // its alert is that of an earlier outcome
	alert(reopened, revision-1)
	forget()
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
	n := alertsOf(t, store)
	if n[alerted.Slot.ID()] != 1 || n[reopened.Slot.ID()] != 2 {
		t.Errorf("stored %v: want one alert for each outcome", n)
	}
}

// Two slots may succeed after one failure. The worker of the first one publishes the recovery, and its fleet
// ends before the state of the job is stored.
func TestARecoveryThatWasReportedLongAgoIsNotReportedByALaterSuccess(t *testing.T) {
	s := newSite(t)
	store := kvtest.Open(t, s.srv.JetStream(), kv.Options{Want: job.Settings{Lease: s.lease}})
	trouble := exchange.AlertState{Job: "report", Failed: true, ID: "report:@failed", Revision: 1, Time: time.Now().Add(-time.Hour).UTC(), Nonce: "n"}
	if _, err := store.AlertStates().Write(t.Context(), trouble, 0); err != nil {
		t.Fatal(err)
	}
	forget := s.forgetful(store)
	first := job.Event{V: codec.Version, Kind: job.EventAlert, Alert: job.AlertRecovered, ID: "report:@first", Job: "report", Time: time.Now().UTC(), Since: trouble.ID}
	if err := store.Alert(t.Context(), first, trouble.RecoveredID()); err != nil {
		t.Fatal(err)
	}
	forget()
	later := job.Slot{Job: "report", Token: "later"}
	if _, err := store.Slots().Put(t.Context(), "default", core.Message{Slot: later, Node: "p", JobRevision: 1}, nil); err != nil {
		t.Fatal(err)
	}
	s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) {
		c.Produce = false
		c.Jobs[0].OnRecovered = &job.Alert{NATS: &job.AlertNATS{Subject: "alerts"}}
	})
	natstest.Eventually(t, "the state without a failure", func() bool {
		state, _, err := store.AlertStates().Read(t.Context(), "report")
		return err == nil && !state.Failed
	})
	if n := alertsOf(t, store); n[first.ID] != 1 || n[later.ID()] != 0 {
		t.Errorf("stored %v: want one alert about the recovery", n)
	}
}

// forgetful makes the stream of events forget message IDs soon. forget waits until it has forgotten those of
// the alerts so far.
func (s *site) forgetful(store *kv.Store) (forget func()) {
	s.Helper()
	js := s.srv.JetStream()
	events, err := js.Stream(s.Context(), store.EventStream())
	if err != nil {
		s.Fatal(err)
	}
	cfg := events.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(s.Context(), cfg); err != nil {
		s.Fatal(err)
	}
	return func() {
		var first uint64
		natstest.Eventually(s.T, "the stream to forget the message IDs", func() bool {
			ack, err := js.Publish(s.Context(), store.EventSubject("alert", "other"), []byte("{}"), jetstream.WithMsgID("other"))
			if err == nil && first == 0 {
				first = ack.Sequence
			}
			return err == nil && ack.Sequence > first
		})
	}
}

// alertsOf counts the stored alerts about each slot.
func alertsOf(t *testing.T, store *kv.Store) map[string]int {
	t.Helper()
	n := map[string]int{}
	for e, err := range store.Events(t.Context(), kv.EventFilter{Kind: job.EventAlert, Job: "report"}) {
		if err != nil {
			t.Fatal(err)
		}
		n[e.ID]++
	}
	return n
}
