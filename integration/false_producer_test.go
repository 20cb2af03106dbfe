//go:build long && unix

package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// falseProducer uses the login of a producer to keep a live record of one that does not exist
// and that is older than all others. If it announces, it says that its share of the slots is
// published, with the digests of the real producers. It publishes nothing.
func (g guarded) falseProducer(announce bool) {
	g.t.Helper()
	store := kvtest.Open(g.t, natstest.JetStream(g.t, natstest.Connect(g.t, g.login("producer"), nats.CustomInboxPrefix("_INBOX.cronce"))), kv.Options{})
	const name = "a-1-1-x"
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	node := exchange.Node{Name: name, State: exchange.NodeAlive, Producer: true, Lease: time.Hour, Started: started, Nonce: name}
	if _, err := store.Nodes().Write(g.t.Context(), node, 0); err != nil {
		g.t.Fatal(err)
	}
	if !announce {
		return
	}
	var mu sync.Mutex
	var heard exchange.Announcement
	stop, err := store.Announcements().Listen(func(a exchange.Announcement) {
		mu.Lock()
		defer mu.Unlock()
		if a.Node != name && a.Kind == exchange.AnnounceHere {
			heard = a
		}
	})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			mu.Lock()
			a := heard
			mu.Unlock()
			a.Node, a.Started, a.Kind, a.Time, a.Except = name, started, exchange.AnnounceHere, time.Now(), nil
			_ = store.Announcements().Announce(a)
		}
	})
	g.t.Cleanup(func() { stop(); cancel(); ended.Wait() })
}

// unpublished returns the slots of n jobs, one a second, in a span of time that has passed, which
// are not in the stream, or were stored more than late after they were due.
func (g guarded) unpublished(n int, from, until time.Time, late time.Duration) (bad []string) {
	g.t.Helper()
	store := kvtest.Open(g.t, g.js, kv.Options{})
	published := map[string]time.Duration{}
	for w, err := range store.Slots().Waiting(g.t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			g.t.Fatal(err)
		}
		published[w.Slot.ID()] = w.Published.Sub(w.Due)
	}
	for i := range n {
		for at := from.Truncate(time.Second); at.Before(until); at = at.Add(time.Second) {
			id := job.NewSlot(fmt.Sprint("job", i), at).ID()
			if delay, ok := published[id]; !ok {
				bad = append(bad, id+" is missing")
			} else if delay > late {
				bad = append(bad, fmt.Sprintf("%s came %v late", id, delay))
			}
		}
	}
	return bad
}

// A login may write any node's record. One that invents a producer, older than all others,
// silences no real one: neither with a record that only stands there, nor with announcements
// of slots that it has not published.
func TestAnInventedProducerSilencesNobodyOnARealServer(t *testing.T) {
	t.Parallel()
	for name, announce := range map[string]bool{"it is silent": false, "it announces what it has not published": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuardedSite(t)
			g.does("setup", "setup", "--lease", lease.String(), "--queue", "default")
			const n = 8
			var jobs []string
			for i := range n {
				jobs = append(jobs, fmt.Sprintf(`name: job%d, schedule: "* * * * * *"`, i))
			}
			file := g.jobs("exit 0", jobs...)
			g.does("operator", "job", "apply", "-f", file)
			g.falseProducer(announce)
			p := g.as("producer").worker("p", file, "--no-work")
			p.says("node is up")
			if announce {
				p.says("announcement false")
			}
			from := time.Now().Add(3 * time.Second)
			until := from.Add(10 * time.Second)
			eventually(t, "ten seconds to pass", func() bool { return time.Now().After(until.Add(5 * time.Second)) })
			if bad := g.unpublished(n, from, until, 4*time.Second); len(bad) > 0 {
				t.Errorf("of %d slots:\n%s", 10*n, strings.Join(bad[:min(len(bad), 20)], "\n"))
			}
			if announce && !strings.Contains(p.stderr(), "a-1-1-x") {
				t.Errorf("the log does not name it: %s", p.stderr())
			}
		})
	}
}
