package replica

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Each delivery of the slot would look for its alert again, and none would have the time to publish it.
func TestAnAlertIsStoredAlthoughTheEarlierOnesCannotBeReadInTime(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	srv := natstest.Run(t)
	store, err := kv.Open(t.Context(), srv.JetStream(), kv.Options{Want: job.Settings{Lease: lease}})
	if err != nil {
		t.Fatal(err)
	}
	alert := func(id string) job.Event {
		return job.Event{V: codec.Version, Kind: job.EventAlert, Alert: job.Failed, ID: id, Job: "report", Time: time.Now().Add(-time.Hour).UTC(), Revision: 3}
	}
	var storing sync.WaitGroup
	for lane := range 10 {
		storing.Go(func() {
			for i := range 100 {
				if err := store.StoreEvent(t.Context(), alert(fmt.Sprintf("report:@%d-%d", lane, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	storing.Wait()
	relay := natstest.NewProxy(t, srv.ClientURL())
	js, err := jetstream.New(natstest.Connect(t, relay.URL()))
	if err != nil {
		t.Fatal(err)
	}
	slow, err := kv.Open(t.Context(), js, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Store: slow, Owner: plans.OwnerCode})
	relay.Set(proxy.Fault{EachLate: 10 * time.Millisecond}) // a thousand alerts take ten seconds
	ctx, cancel := context.WithTimeout(t.Context(), lease)
	defer cancel()
	e := alert("report:@own")
	if err := r.alert(ctx, e, "id", e.Time); err != nil {
		t.Errorf("store the alert: %v", err)
	}
	last := job.Event{}
	for e, err := range store.Events(t.Context(), kv.EventFilter{Job: "report"}) {
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	if last.ID != e.ID {
		t.Errorf("the last event is about %s, want the alert", last.ID)
	}
}
