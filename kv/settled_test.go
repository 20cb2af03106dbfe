package kv_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// watched records the events of a watch of the registry.
type watched struct {
	mu      sync.Mutex
	ready   uint64
	settled []uint64
	seen    uint64
}

func watchJobs(t *testing.T, store *kv.Store) *watched {
	w := &watched{}
	ctx, stop := context.WithCancel(context.Background())
	var under sync.WaitGroup
	under.Go(func() {
		if err := store.Jobs().Watch(ctx, w.take); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); under.Wait() })
	return w
}

func (w *watched) take(ev plans.RegistryEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ev.Ready:
		w.ready = ev.Revision
	case ev.Settled:
		w.settled = append(w.settled, ev.Revision)
	default:
		w.seen = ev.Revision
	}
}

// last returns the revision of the last settled event, or 0.
func (w *watched) last() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.settled) == 0 {
		return 0
	}
	return w.settled[len(w.settled)-1]
}

func writeJob(t *testing.T, store *kv.Store, name string, revision uint64) uint64 {
	t.Helper()
	d := plans.Definition{Job: job.Job{Name: name, Schedule: "@daily"}, Nonce: fmt.Sprint(time.Now().UnixNano())}
	won, err := store.Jobs().Write(t.Context(), d, revision)
	if err != nil {
		t.Fatal(err)
	}
	return won
}

// olderBucket recreates the bucket's stream with the config of older versions, which
// allowed purges.
func olderBucket(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.DenyPurge, cfg.AllowRollup = false, true
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// "nats kv compact" removes the markers of deleted keys. If the last write was a deletion,
// only the stream's last sequence is left, and the watermark refers to it.
func TestAWatchKnowsTheRevisionOfARegistryThatWasCompacted(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store := open(t, js, kv.Options{})
	olderBucket(t, js, "KV_cronce_jobs")
	writeJob(t, store, "stays", 0)
	running := watchJobs(t, store)
	if err := store.Jobs().Delete(t.Context(), "goes", writeJob(t, store, "goes", 0)); err != nil {
		t.Fatal(err)
	}
	last, err := store.Jobs().Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the removal", func() bool { return running.last() == last })
	bucket, err := js.KeyValue(t.Context(), "cronce_jobs")
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.PurgeDeletes(t.Context(), jetstream.DeleteMarkersOlderThan(-1)); err != nil {
		t.Fatal(err)
	}
	w := watchJobs(t, store)
	natstest.Eventually(t, "the watch to settle", func() bool { return w.last() != 0 })
	if w.ready != last || w.last() != last {
		t.Errorf("ready at revision %d, settled at %d, want both at %d, the registry's last", w.ready, w.last(), last)
	}
	next := writeJob(t, store, "more", 0)
	natstest.Eventually(t, "the next write", func() bool { return w.last() == next && running.last() == next })
}

// A watch also settles while the registry is edited without a pause.
func TestAWatchSettlesWhileTheRegistryIsEditedWithoutAPause(t *testing.T) {
	t.Parallel()
	store := open(t, natstest.Run(t).JetStream(), kv.Options{})
	w := watchJobs(t, store)
	var revision uint64
	natstest.Eventually(t, "the watch to settle again and again", func() bool {
		for range 100 {
			revision = writeJob(t, store, "report", revision)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.settled) > 10
	})
}
