package kv_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

// A watch's consumer stops delivering while its heartbeats go on. The audit detects that
// within its interval, and the watch then reports what it missed.
func TestAStalledWatchIsFoundByItsAudit(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	js := s.JetStream()
	watch := func(audit time.Duration) (*kv.Store, chan plans.RegistryEvent) {
		store := open(t, s.JetStream(), kv.Options{})
		store.Audit = audit
		ctx, cancel := context.WithCancel(context.Background())
		events := make(chan plans.RegistryEvent, 100)
		var ending sync.WaitGroup
		ending.Go(func() {
			if err := store.Jobs().Watch(ctx, func(e plans.RegistryEvent) { events <- e }); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { cancel(); ending.Wait() })
		if e := <-events; !e.Ready {
			t.Fatalf("the first event is %+v", e)
		}
		return store, events
	}
	const audit = 2 * time.Second
	store, audited := watch(audit)
	_, unaudited := watch(time.Hour)
	stream, err := js.Stream(t.Context(), "KV_cronce_jobs")
	if err != nil {
		t.Fatal(err)
	}
	// An audit may replace a consumer during the pause, so repeat until both are paused.
	natstest.Eventually(t, "both watches to stall", func() bool {
		stalled := 0
		for c := range stream.ListConsumers(t.Context()).Info() {
			if _, err := stream.PauseConsumer(t.Context(), c.Name, time.Now().Add(time.Hour)); err == nil {
				stalled++
			}
		}
		return stalled == 2
	})
	began := time.Now()
	if _, err := store.Jobs().Write(t.Context(), kvtest.Definition("report", "1"), 0); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-audited:
		if e.Name != "report" {
			t.Errorf("reported %+v", e)
		}
	case <-time.After(natstest.Patience):
		t.Fatalf("nothing was reported in %v", time.Since(began))
	}
	t.Logf("reported after %v", time.Since(began))
	select {
	case e := <-unaudited:
		t.Errorf("the watch was not stalled: it reported %+v", e)
	default:
	}
}

// Each node has a consumer of its own on the registry. The limit of an account holds for each stream.
func TestAWatchThatMayHaveNoConsumerListsTheChangesAndSaysWhyOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	js := s.JetStream()
	store := open(t, js, kv.Options{})
	var log bytes.Buffer
	store.Log = slog.New(slog.NewTextHandler(&log, nil))
	limits := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: 1}
	if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "KV_cronce_jobs", jetstream.ConsumerConfig{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{}
	var under sync.WaitGroup
	under.Go(func() {
		if err := store.Jobs().Watch(ctx, w.take); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"one", "two"} {
		revision := writeJob(t, store, name, 0)
		natstest.Eventually(t, "the change", func() bool { return w.last() == revision })
	}
	stop()
	under.Wait() // before the log is read
	if text := log.String(); strings.Count(text, "watch restarted") != 1 || !strings.Contains(text, "max_consumers") {
		t.Errorf("want one line that names max_consumers:\n%s", text)
	}
}
