package wire_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// The leaf node then says that nothing responds, which is also what a server without JetStream says.
func TestAskRepeatsARequestWhileALeafNodeHasLostItsHub(t *testing.T) {
	t.Parallel()
	port := natstest.FreePorts(t, 1)[0]
	hub := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", port
	})
	leaf := natstest.Run(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "leaf", "leaf"
		o.LeafNode.ReconnectInterval = 100 * time.Millisecond
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: hub.LeafAddr()}}}}
	})
	natstest.Eventually(t, "the leaf to reach the hub", func() bool { return leaf.NumLeafNodes() == 1 })
	if _, err := hub.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	nc := leaf.Conn()
	domain := func(name string) wire.Wire {
		js, err := jetstream.NewWithDomain(nc, name)
		if err != nil {
			t.Fatal(err)
		}
		return wire.NewWire(js)
	}
	w := domain("hub")
	if _, err := w.StreamInfo(t.Context(), "look at S", "S"); err != nil {
		t.Fatal(err)
	}
	hub.Stop()
	natstest.Eventually(t, "the leaf to lose the hub", func() bool { return leaf.NumLeafNodes() == 0 })

	asked, refused := make(chan error, 1), make(chan struct{}, 1000)
	go func() {
		asked <- w.Ask(t.Context(), "look at S", w.API("STREAM.INFO.S"), func(ctx context.Context) error {
			_, err := w.JS.Stream(ctx, "S")
			if errors.Is(err, nats.ErrNoResponders) {
				refused <- struct{}{}
			}
			return err
		})
	}()
	for range 2 {
		select {
		case <-refused:
		case err := <-asked:
			t.Fatalf("the request ended: %v", err)
		}
	}
	// A domain that has never answered may not exist.
	if _, err := domain("other").StreamInfo(t.Context(), "look at S", "S"); !errors.Is(err, nats.ErrNoResponders) || errors.Is(err, job.ErrUnknown) {
		t.Errorf("in a domain that has never answered: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.StreamInfo(ended, "look at S", "S"); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("after the context has ended: %v", err)
	}
	hub.Start()
	if err := <-asked; err != nil {
		t.Errorf("when the hub is back: %v", err)
	}
}
