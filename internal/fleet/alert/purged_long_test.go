//go:build long

package alert_test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// The alerts of one job are purged while a worker has alerts pending. The server never delivers those
// of other jobs again (integration/facts). The fix of the operations page brings them back.
func TestAlertsThatAPurgeHidAreDeliveredWhenTheConsumerIsRemoved(t *testing.T) {
	f := newFixture(t)
	s := newService(t)
	f.alertTo("report", webhook(s.URL))
	if _, err := f.store.Alerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, f.nc)
	stream, err := js.Stream(t.Context(), "cronce_events")
	if err != nil {
		t.Fatal(err)
	}
	taker, err := stream.Consumer(t.Context(), layout.AlertConsumer)
	if err != nil {
		t.Fatal(err)
	}
	lost := f.fail("report", 1)
	f.fail("noisy", 1)
	natstest.Take(t, taker, 2) // by a worker that dies
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("cronce.event.alert.noisy")); err != nil {
		t.Fatal(err)
	}
	f.run()
	next := f.fail("report", 2)
	f.eventually("the next alert", func() bool { return len(s.all()) == 1 && s.all()[0].key() == next })
	f.eventually("the ack floor to pass the lost alert", func() bool {
		c, err := f.consumer()
		return err == nil && c.AckFloor.Stream > 1
	})
	if err := stream.DeleteConsumer(t.Context(), layout.AlertConsumer); err != nil {
		t.Fatal(err)
	}
	f.eventually("all of them", func() bool {
		return slices.ContainsFunc(s.all(), func(r request) bool { return r.key() == lost })
	})
}
