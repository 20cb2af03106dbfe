package kv_test

import (
	"context"
	"sync"
	"testing"
	"time"

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
