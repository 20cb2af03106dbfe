package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	clientsBehind = 3 // behind a proxy that can lose answers
	clientsBeside = 3
)

// recruit makes a fleet of clients of a broker, of which some are behind the proxy. wrap wraps the ledger
// of each client.
func recruit(t *testing.T, beside func() jetstream.JetStream, proxy *proxy.Proxy, wrap func(slotLedger) slotLedger) *fleet {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &fleet{t: t, h: newHistory()}
	for i := range clientsBehind + clientsBeside {
		js := beside
		if i < clientsBehind {
			js = func() jetstream.JetStream {
				return natstest.JetStream(t, natstest.Connect(t, proxy.URL(), nats.IgnoreDiscoveredServers()))
			}
		}
		store := kvtest.Open(t, js(), kv.Options{})
		f.enlist(rand.New(rand.NewPCG(seed, uint64(i))), wrap(store.Ledger()), store.Nodes())
	}
	return f
}

func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func real(l slotLedger) slotLedger { return l }

// report logs how many calls of each kind the history has. It fails the test if a kind is missing
// without which the history proves nothing.
func (f *fleet) report() {
	f.t.Helper()
	kinds := map[string]int{}
	for _, c := range f.h.calls {
		kinds[c.what+" "+string(c.outcome)]++
	}
	f.t.Logf("%d calls: %v", len(f.h.calls), kinds)
	for _, kind := range []string{"claim won", "claim conflict", "takeover won", "fence won", "beat conflict", "complete won", "complete conflict"} {
		if kinds[kind] == 0 {
			f.t.Errorf("the history has no %q: it shows nothing", kind)
		}
	}
	if f.unknown.Load() == 0 {
		f.t.Error("every call was answered at once: the faults showed nothing")
	}
}

// Answers are lost, connections are cut, and the server is restarted. Reads are linearizable too.
func TestLedgerIsLinearizableOnOneServer(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	proxy := natstest.NewProxy(t, server.ClientURL())
	f := recruit(t, func() jetstream.JetStream { return server.JetStream() }, proxy, real)
	ctx := patiently(t)
	deaf := fault{proxy.Deafen, clientsBehind, proxy.Heal}
	f.round(ctx, nil)
	f.interrupted(ctx, f.clients[:clientsBehind], &deaf)
	for _, fault := range []*fault{&deaf, {breaks: server.Restart}, {proxy.Cut, 0, proxy.Heal}, nil} {
		f.round(ctx, fault)
	}
	f.report()
	f.h.mustBeLinearizable(t, false)
}

// Answers are lost, and the ledger's leader is stopped. Reads are hints there, as package kv says: a
// leader that was just elected may answer with what was true before.
func TestLedgerIsLinearizableOnThreeServers(t *testing.T) {
	t.Parallel()
	cluster := natstest.RunCluster(t)
	kvtest.Open(t, cluster.JetStream(), kv.Options{})
	leader := cluster.Leader("KV_cronce_ledger")
	entry := cluster.Servers[0]
	if entry == leader {
		entry = cluster.Servers[1]
	}
	proxy := natstest.NewProxy(t, entry.ClientURL())
	f := recruit(t, func() jetstream.JetStream { return cluster.JetStream() }, proxy, real)
	ctx := patiently(t)
	deaf := fault{proxy.Deafen, clientsBehind, proxy.Heal}
	f.round(ctx, nil)
	f.interrupted(ctx, f.clients[:clientsBehind], &deaf)
	for _, fault := range []*fault{&deaf, {breaks: leader.Stop}, nil} {
		f.round(ctx, fault)
	}
	f.report()
	f.h.mustBeLinearizable(t, true)
}

// TestCheckerCatchesBrokenLedgers runs the same fleet on ledgers each of which is wrong in one way. The
// check must find that their histories are not linearizable.
func TestCheckerCatchesBrokenLedgers(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(slotLedger) slotLedger{
		"AWriteThatIgnoresTheRevision":       func(l slotLedger) slotLedger { return careless{l} },
		"AWriteThatTakesSilenceForAConflict": func(l slotLedger) slotLedger { return hasty{l} },
		"AReadThatIsRemembered":              func(l slotLedger) slotLedger { return &forgetful{slotLedger: l, seen: map[job.Slot]memory{}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Run(t)
			proxy := natstest.NewProxy(t, server.ClientURL())
			f := recruit(t, func() jetstream.JetStream { return server.JetStream() }, proxy, broken)
			ctx := patiently(t)
			for range 8 { // a single round may not show it
				f.round(ctx, nil)
				f.interrupted(ctx, f.clients[:clientsBehind], &fault{proxy.Deafen, clientsBehind, proxy.Heal})
				f.round(ctx, nil)
				result, _, err := f.h.check(false)
				if err != nil || result == porcupine.Illegal {
					return
				}
			}
			t.Fatalf("%d calls on a broken ledger were taken for right", len(f.h.calls))
		})
	}
}

// careless writes at whatever revision the key has, and not at the one that the caller names.
type careless struct{ slotLedger }

func (l careless) Write(ctx context.Context, r job.Record, _ uint64) (uint64, error) {
	_, revision, err := l.Read(ctx, r.Slot)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		return 0, err
	}
	return l.slotLedger.Write(ctx, r, revision)
}

// hasty takes a missing answer for a conflict, and does not wait long for one.
type hasty struct{ slotLedger }

func (l hasty) Write(ctx context.Context, r job.Record, at uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
	defer cancel()
	revision, err := l.slotLedger.Write(ctx, r, at)
	if errors.Is(err, job.ErrUnknown) {
		return 0, job.ErrConflict
	}
	return revision, err
}

// forgetful answers each read of a slot with the result of its first read.
type forgetful struct {
	slotLedger
	mu   sync.Mutex
	seen map[job.Slot]memory
}

type memory struct {
	record   job.Record
	revision uint64
}

func (l *forgetful) Read(ctx context.Context, s job.Slot) (job.Record, uint64, error) {
	l.mu.Lock()
	m, known := l.seen[s]
	l.mu.Unlock()
	if known {
		return m.record, m.revision, nil
	}
	r, revision, err := l.slotLedger.Read(ctx, s)
	if err == nil {
		l.mu.Lock()
		l.seen[s] = memory{r, revision}
		l.mu.Unlock()
	}
	return r, revision, err
}
