package kv_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// The stream keeps events of the exceptional kinds. An event that cannot be decoded does
// not hide the others.
func TestEventsAreKept(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	ctx := within(t, 10*time.Second)
	first := job.Event{V: codec.Version, Kind: job.EventFailed, ID: "report:2026-11-21T07:00:00Z", Job: "report", Fence: 7}
	if err := s.StoreEvent(ctx, first); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, s.EventSubject("alert", "report"), []byte("?")); err != nil {
		t.Fatal(err)
	}
	last := job.Event{V: codec.Version, Kind: job.EventAlert, ID: first.ID, Job: "report", Reopened: true}
	if err := s.StoreEvent(ctx, last); err != nil {
		t.Fatal(err)
	}
	var got []job.Event
	bad := 0
	for e, err := range s.Events(ctx, kv.EventFilter{Since: time.Now().Add(-time.Minute)}) {
		switch {
		case errors.Is(err, job.ErrInvalid):
			bad++
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, e)
		}
	}
	if len(got) != 2 || got[0] != first || got[1] != last || bad != 1 {
		t.Errorf("kept %+v and %d that cannot be read", got, bad)
	}
	for e, err := range s.Events(ctx, kv.EventFilter{Since: time.Now().Add(time.Hour)}) {
		t.Errorf("from the future: %+v, %v", e, err)
	}
	for name, want := range map[string]int{"report": 2, "repor": 0, exchange.NoJob: 0} {
		n := 0
		for _, err := range s.Events(ctx, kv.EventFilter{Job: name}) {
			if err == nil {
				n++
			}
		}
		if n != want {
			t.Errorf("%d events about %q, want %d", n, name, want)
		}
	}
}

// Each delivery of a slot of long ago looks for its alert. Its job may have had any number since.
func TestAnAlertIsLookedForAmongTheFirstThousand(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	ctx := within(t, natstest.Patience)
	ended := time.Now().UTC()
	alert := func(id string) job.Event {
		return job.Event{V: codec.Version, Kind: job.EventAlert, Alert: job.Failed, ID: id, Job: "report", Time: ended, Revision: 3}
	}
	for i := range 1001 {
		id := fmt.Sprint("report:@other-", i)
		switch i {
		case 999:
			id = "report:@last"
		case 1000:
			id = "report:@beyond"
		}
		if err := s.Alert(ctx, alert(id), id); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]bool{"report:@last": true, "report:@beyond": false, "report:@never": false} {
		if has, err := s.HasAlert(ctx, alert(id), id, ended); has != want || err != nil {
			t.Errorf("%s has an alert: %v, %v; want %v", id, has, err, want)
		}
	}
}

// Two slots may succeed after the same failure. The worker of one publishes the recovery and dies before it
// stores that the job has recovered. The worker of the other may find the trouble long after that.
func TestARecoveryIsThatOfItsTroubleWhicheverSlotSucceeded(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	ctx := within(t, natstest.Patience)
	recovered := func(id string, revision uint64) job.Event {
		return job.Event{V: codec.Version, Kind: job.EventAlert, Alert: job.AlertRecovered, ID: id, Job: "report", Time: time.Now().UTC(), Revision: revision, Since: "report:@failed"}
	}
	trouble, later := exchange.AlertState{Job: "report", Revision: 10}, exchange.AlertState{Job: "report", Revision: 15}
	second := recovered("report:@second", 30)
	if err := s.Alert(ctx, second, trouble.RecoveredID()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		e    job.Event
		of   exchange.AlertState
		want bool
	}{{second, trouble, true}, {recovered("report:@first", 20), trouble, true}, {second, later, false}, {recovered("report:@first", 20), later, false}} {
		if has, err := s.HasAlert(ctx, c.e, c.of.RecoveredID(), c.e.Time); has != c.want || err != nil {
			t.Errorf("the trouble at %d, which %s would end, has its recovery: %v, %v; want %v", c.of.Revision, c.e.ID, has, err, c.want)
		}
	}
}

// The stream folds messages by their ID whatever their subject is. A login that may write the events of one job
// can guess the ID of another job's alert.
func TestADuplicateIsTakenForAnAlertOnlyIfItIsThatAlert(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	alert := job.Event{V: 1, Kind: job.EventAlert, Alert: job.Failed, Time: time.Now().UTC(), Job: "report", ID: "report:@k", Node: "n", Revision: 3}
	const id = "report:@k/alert/failed/3"
	stored := func() (n int) {
		t.Helper()
		for e, err := range s.Events(t.Context(), kv.EventFilter{Kind: job.EventAlert, Job: "report"}) {
			if err != nil || e.ID != alert.ID {
				t.Errorf("%+v, %v", e, err)
			}
			n++
		}
		return n
	}
	if _, err := js.Publish(t.Context(), "cronce.event.ordered.evil", []byte("{}"), jetstream.WithMsgID(id)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // its slot's message is delivered again
		if err := s.Alert(t.Context(), alert, id); err != nil || stored() != 1 {
			t.Errorf("%d alerts, want one: %v", stored(), err)
		}
	}
	if has, err := s.HasAlert(t.Context(), alert, id, alert.Time); err != nil || !has {
		t.Errorf("the alert is found: %v, %v", has, err)
	}
	other := alert
	other.ID = "report:@other"
	alert = other
	for range 2 {
		if err := s.Alert(t.Context(), other, "report:@other/alert/failed/3"); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := s.HasAlert(t.Context(), other, "report:@other/alert/failed/4", alert.Time); err != nil || has {
		t.Errorf("another alert is found: %v, %v", has, err)
	}
}
