package natstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/nats-io/nats.go/jetstream"
)

// Every test that restarts a server depends on this.
func TestServerKeepsItsFilesOverARestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := natstest.Run(t)
	js := s.JetStream()
	bucket, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.PutString(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	natstest.Eventually(t, "the client to find the server again", func() bool {
		return js.Conn().Stats().Reconnects == 1 && js.Conn().IsConnected()
	})
	if e, err := bucket.Get(ctx, "k"); err != nil || string(e.Value()) != "v" {
		t.Fatalf("after the restart: %v, %v", e, err)
	}
}

func TestClusterHoldsThreeReplicas(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := natstest.RunCluster(t)
	if _, err := c.JetStream().CreateStream(ctx, jetstream.StreamConfig{Name: "s", Subjects: []string{"s"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if leader := c.Leader("s"); leader == nil {
		t.Fatal("no leader")
	}
}
