package replica_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// If the socket of a connection is blocked, the NATS client holds the connection's lock for a minute.
// Live does not need that lock, and Run ends after its grace period and a bound.
func TestABlockedSocketHoldsUpNeitherLiveNorTheEndOfRun(t *testing.T) {
	s := newSite(t)
	s.lease = 10 * time.Second
	p := natstest.NewProxy(t, s.srv.ClientURL())
	nc := natstest.Connect(t, p.URL(), nats.FlusherTimeout(10*time.Minute)) // the client would hold the lock for as long
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := kvtest.Open(t, js, kv.Options{Want: job.Settings{Lease: s.lease}})
	const grace = time.Second
	started := make(chan struct{}, 100)
	r := replica.New(replica.Config{
		Store: store, Owner: "code", Produce: true, Queues: []string{"default"}, Grace: grace,
		Jobs: []job.Job{{Name: "report", Schedule: "* * * * * *", Retry: job.Retry{Attempts: 1}}},
		Handler: func(string) job.Handler {
			return func(ctx context.Context, _ job.Run) error { started <- struct{}{}; <-ctx.Done(); return nil }
		},
		Handlers: func() []string { return []string{"report"} },
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var ending sync.WaitGroup
	ending.Go(func() { done <- r.Run(ctx) })
	t.Cleanup(func() { stop(); p.Heal(); ending.Wait() })
	waitFor(s, "a start", started)
	p.Stall()
	for full := false; !full; {
		for range 64 {
			_ = store.Emit(job.Event{Kind: "noise", Error: strings.Repeat("x", 64<<10)})
		}
		flush, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		full = store.Flush(flush) != nil
		cancel()
	}
	live := make(chan error, 1)
	go func() { live <- r.Live() }()
	if err := waitFor(s, "Live", live); err != nil {
		t.Error(err)
	}
	stop()
	began := time.Now()
	if err := waitFor(s, "the end of Run", done); err != nil {
		t.Error(err)
	}
	t.Logf("Run ended after %v", time.Since(began))
}
