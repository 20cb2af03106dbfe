package kv_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, js jetstream.JetStream, o kv.Options) *kv.Store {
	t.Helper()
	s, err := kv.Open(within(t, 30*time.Second), js, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conform runs the conformance suite, each test in its own namespace.
func conform(t *testing.T, js jetstream.JetStream, replicas int) {
	var n atomic.Int64
	conformTo(t, func(t *testing.T) anyStore {
		s := open(t, js, kv.Options{Namespace: fmt.Sprintf("ns%d", n.Add(1))})
		if got := s.Settings().Replicas; got != replicas {
			t.Fatalf("%d replicas were chosen, want %d", got, replicas)
		}
		return anyStore{Ledger: s.Ledger(), Nodes: s.Nodes(), Jobs: s.Jobs(), Watermark: s.Watermark(), Locks: s.Locks(), Lines: s.Lines()}
	})
}

func TestConformOnOneServer(t *testing.T) {
	t.Parallel()
	conform(t, natstest.Run(t).JetStream(), 1)
}

func TestConformOnThreeServers(t *testing.T) {
	t.Parallel()
	conform(t, natstest.RunCluster(t).JetStream(), 3)
}

func TestMemstoreConforms(t *testing.T) {
	t.Parallel()
	conformTo(t, func(*testing.T) anyStore {
		s := memstore.New()
		return anyStore{Ledger: s.Ledger(), Nodes: s.Nodes(), Jobs: s.Jobs(), Watermark: s.Watermark(), Locks: s.Locks(), Lines: s.Lines()}
	})
}
