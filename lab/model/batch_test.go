package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// company is the name of the job whose records fill the batches.
const company = "company"

// keepCompany writes records of the job company until ctx ends. It always has many writes open, so a
// client's writes to the same ledger wait with them and go in their batches.
func keepCompany(ctx context.Context, l *kv.Ledger, id int) {
	const open = 60
	room := make(chan struct{}, open)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case room <- struct{}{}:
		}
		r := job.Record{
			Slot: job.NewSlot(company, epoch.Add(time.Duration(n)*time.Second)), Queue: "default", State: job.Running,
			Attempt: 1, Node: fmt.Sprintf("w%d", id), Nonce: fmt.Sprintf("%d#%d", id, n), Attempts: []job.Attempt{{Number: 1, Started: epoch}},
		}
		r.Slot.Job = fmt.Sprintf("%s-%d", company, id)
		l.Send(ctx, r, 0, func(uint64, error) { <-room })
	}
}

// accompanied writes with the context of keepCompany, since all messages of a batch must have the same
// context. If a client gives up, its write goes on.
type accompanied struct {
	*kv.Ledger
	company context.Context
}

func (l accompanied) Write(ctx context.Context, r job.Record, at uint64) (uint64, error) {
	type answer struct {
		revision uint64
		err      error
	}
	answered := make(chan answer, 1)
	l.Send(l.company, r, at, func(revision uint64, err error) { answered <- answer{revision, err} })
	select {
	case a := <-answered:
		return a.revision, a.err
	case <-ctx.Done():
		return 0, fmt.Errorf("write %s: %w", r.Slot.ID(), job.ErrUnknown)
	}
}

// slow delays the server's answers, so that a store counts the storage as slow, however fast that
// is: one more message takes more than twice wire.SlowStorage.
func slow(p *proxy.Proxy) { p.Slow(600 * time.Microsecond) }

// recruitTogether is recruit for clients whose writes go in atomic batches: three share a store
// behind each proxy, which is slow.
func recruitTogether(t *testing.T, proxies ...*proxy.Proxy) (f *fleet, stop func()) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f = &fleet{t: t, h: newHistory()}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i, proxy := range proxies {
		slow(proxy)
		store := kvtest.Open(t, natstest.JetStream(t, natstest.Connect(t, proxy.URL(), nats.IgnoreDiscoveredServers())), kv.Options{})
		l := store.Ledger()
		for range clientsBehind {
			f.enlist(rand.New(rand.NewPCG(seed, uint64(len(f.clients)))), accompanied{l, ctx}, store.Nodes())
		}
		working.Go(func() { keepCompany(ctx, l, i) })
	}
	return f, func() { cancel(); working.Wait() }
}

// batched counts the writes of clients, and those that keep them company, that were sent in
// atomic batches.
type batched struct{ clients, company atomic.Int64 }

func countBatched(t *testing.T, nc *nats.Conn) *batched {
	t.Helper()
	var b batched
	_, err := nc.Subscribe("$KV.cronce_ledger.>", func(m *nats.Msg) {
		switch {
		case m.Header.Get("Nats-Batch-Id") == "":
		case strings.Contains(m.Subject, company):
			b.company.Add(1)
		default:
			b.clients.Add(1)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &b
}

// together runs a fleet whose writes go in batches through the faults, and checks its history.
func together(ctx context.Context, t *testing.T, js jetstream.JetStream, behind, beside *proxy.Proxy, hint bool, faults ...*fault) {
	t.Helper()
	sent := countBatched(t, js.Conn())
	f, stop := recruitTogether(t, behind, beside)
	defer stop()
	f.reach("batches", func() bool { return sent.company.Load() > 1000 })
	f.round(ctx, nil)
	f.interrupted(ctx, f.clients[:clientsBehind], &fault{behind.Deafen, clientsBehind, func() { slow(behind) }})
	for _, fault := range faults {
		f.round(ctx, fault)
	}
	for sent.clients.Load() < 30 { // fewer prove nothing
		f.round(ctx, nil)
	}
	stop()
	f.report()
	t.Logf("%d writes of clients in batches, with %d others", sent.clients.Load(), sent.company.Load())
	f.h.mustBeLinearizable(t, hint)
}

// Batches lose their answers, are cut in the middle, and meet a restart.
func TestLedgerInBatchesIsLinearizableOnOneServer(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	behind, beside := natstest.NewProxy(t, server.ClientURL()), natstest.NewProxy(t, server.ClientURL())
	together(patiently(t), t, server.JetStream(), behind, beside, false,
		&fault{behind.Deafen, clientsBehind, func() { slow(behind) }}, &fault{breaks: server.Restart}, &fault{behind.Cut, 0, func() { slow(behind) }}, nil)
}

// The leader of the ledger stops while batches are open.
func TestLedgerInBatchesIsLinearizableOnThreeServers(t *testing.T) {
	t.Parallel()
	cluster := natstest.RunCluster(t)
	kvtest.Open(t, cluster.JetStream(), kv.Options{})
	leader := cluster.Leader("KV_cronce_ledger")
	entry := cluster.Servers[0]
	if entry == leader {
		entry = cluster.Servers[1]
	}
	behind, beside := natstest.NewProxy(t, entry.ClientURL()), natstest.NewProxy(t, entry.ClientURL())
	together(patiently(t), t, cluster.JetStream(), behind, beside, true,
		&fault{behind.Deafen, clientsBehind, func() { slow(behind) }}, &fault{breaks: leader.Stop}, nil)
}
