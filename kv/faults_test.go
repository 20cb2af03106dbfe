package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// behindProxy opens one namespace twice: through a proxy, and directly.
func behindProxy(t *testing.T, prepare ...func(jetstream.JetStream)) (through, beside *kv.Store, p *proxy.Proxy, js jetstream.JetStream) {
	t.Helper()
	s := natstest.Run(t)
	p = natstest.NewProxy(t, s.ClientURL())
	js = s.JetStream()
	for _, f := range prepare {
		f(js)
	}
	beside = open(t, js, kv.Options{})
	through = open(t, natstest.JetStream(t, natstest.Connect(t, p.URL())), kv.Options{})
	return through, beside, p, js
}

func stored(t *testing.T, l *kv.Ledger, slot job.Slot) (job.Record, uint64) {
	t.Helper()
	var r job.Record
	var rev uint64
	natstest.Eventually(t, "the record to be stored", func() bool {
		var err error
		r, rev, err = l.Read(t.Context(), slot)
		return err == nil
	})
	return r, rev
}

// The answer to a write is lost. The repeated write meets its own first copy, over a new
// connection, and succeeds. The same holds for Send, and other writes may be sent
// meanwhile.
func TestAWriteWhoseAnswerIsLostIsRecognised(t *testing.T) {
	t.Parallel()
	through, beside, p, _ := behindProxy(t)
	p.Deafen()
	type result struct {
		minute int
		rev    uint64
		err    error
	}
	const writes = 6
	done := make(chan result, writes)
	for i := range writes {
		ledger := anyLedger(through.Ledger())
		if i%2 == 1 {
			ledger = sentLedger{anyLedger: ledger}
		}
		go func() {
			rev, err := ledger.Write(within(t, 20*time.Second), kvtest.Record(i, fmt.Sprint("mine", i)), 0)
			done <- result{i, rev, err}
		}()
	}
	want := map[int]uint64{}
	for i := range writes {
		_, want[i] = stored(t, beside.Ledger(), kvtest.Record(i, "").Slot)
	}
	p.Heal()
	for range writes {
		if got := <-done; got.err != nil || got.rev != want[got.minute] {
			t.Errorf("record %d: got revision %d, %v; want %d", got.minute, got.rev, got.err, want[got.minute])
		}
	}
}

// If ctx ends before the answer, the write returns job.ErrUnknown although it was stored.
// The same write again settles it.
func TestAnUnansweredWriteIsUnknownUntilRepeated(t *testing.T) {
	t.Parallel()
	through, beside, p, _ := behindProxy(t)
	r := kvtest.Record(0, "mine")
	p.Deafen()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, ledger := range []anyLedger{through.Ledger(), sentLedger{anyLedger: through.Ledger()}} {
		if _, err := ledger.Write(ctx, r, 0); !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrConflict) {
			t.Fatalf("got %v, want unknown", err)
		}
	}
	_, rev := stored(t, beside.Ledger(), r.Slot)
	p.Heal()
	again, err := through.Ledger().Write(within(t, 20*time.Second), r, 0)
	if err != nil || again != rev {
		t.Fatalf("again: revision %d, %v; want %d", again, err, rev)
	}
}

// While a writer waits for an answer, another writer takes over its record. The repeated
// write returns a conflict.
func TestAnUnansweredWriteThatLostIsAConflict(t *testing.T) {
	t.Parallel()
	through, beside, p, _ := behindProxy(t)
	r := kvtest.Record(0, "mine")
	p.Deafen()
	done := make(chan error, 1)
	go func() {
		_, err := through.Ledger().Write(within(t, 20*time.Second), r, 0)
		done <- err
	}()
	_, rev := stored(t, beside.Ledger(), r.Slot)
	if _, err := beside.Ledger().Write(t.Context(), kvtest.Record(0, "theirs"), rev); err != nil {
		t.Fatal(err)
	}
	p.Heal()
	if err := <-done; !errors.Is(err, job.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
}

func TestAnUnansweredReadIsUnknownAndNamesTheSlot(t *testing.T) {
	t.Parallel()
	through, _, p, _ := behindProxy(t)
	p.Deafen()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	slot := kvtest.Record(0, "").Slot
	_, _, err := through.Ledger().Read(ctx, slot)
	if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrNotFound) || !strings.Contains(err.Error(), "read record of "+slot.ID()+": ") {
		t.Fatalf("got %v, want unknown", err)
	}
}

// watchNodes returns the events of a watch.
func watchNodes(t *testing.T, s *kv.Store) <-chan exchange.NodeEvent {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan exchange.NodeEvent, 100), make(chan error, 1)
	go func() { ended <- s.Nodes().Watch(ctx, func(e exchange.NodeEvent) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return events
}

func await(t *testing.T, events <-chan exchange.NodeEvent, what string, match func(exchange.NodeEvent) bool) exchange.NodeEvent {
	t.Helper()
	deadline := time.After(natstest.Patience)
	for {
		select {
		case e := <-events:
			if match(e) {
				return e
			}
			t.Logf("also: %+v", e)
		case <-deadline:
			t.Fatalf("no event: %s", what)
		}
	}
}

func isReady(e exchange.NodeEvent) bool { return e.Ready }

func TestWatchSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s := open(t, server.JetStream(), kv.Options{})
	rev, err := s.Nodes().Write(t.Context(), kvtest.Node("n1", "a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	events := watchNodes(t, s)
	await(t, events, "ready", isReady)
	server.Restart()
	// This write uses the watch's connection, as soon as it has reconnected.
	next, err := s.Nodes().Write(within(t, 20*time.Second), kvtest.Node("n1", "b"), rev)
	if err != nil {
		t.Fatal(err)
	}
	if e := await(t, events, "n1 after the restart", func(e exchange.NodeEvent) bool { return e.Name == "n1" }); e.Revision != next {
		t.Fatalf("event %+v, want revision %d and no older one again", e, next)
	}
}

// While the watcher is disconnected, one key is changed and another is purged without a
// delete marker. The watch reports both.
func TestWatchTellsWhatItMissed(t *testing.T) {
	t.Parallel()
	through, beside, p, js := behindProxy(t, func(js jetstream.JetStream) { oldBucket(t, js, "cronce_nodes", time.Hour) }) // an old bucket, in which keys can be purged
	revs := map[string]uint64{}
	for _, name := range []string{"changed", "collected", "same"} {
		rev, err := beside.Nodes().Write(t.Context(), kvtest.Node(name, "a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		revs[name] = rev
	}
	events := watchNodes(t, through)
	await(t, events, "ready", isReady)
	p.Cut()
	want, err := beside.Nodes().Write(t.Context(), kvtest.Node("changed", "b"), revs["changed"])
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_cronce_nodes")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.cronce_nodes.collected")); err != nil {
		t.Fatal(err)
	}
	p.Heal()
	for range 2 {
		e := await(t, events, "changed, and collected gone", func(exchange.NodeEvent) bool { return true })
		switch {
		case e.Name == "changed" && e.Revision == want && !e.Gone:
		case e.Name == "collected" && e.Gone:
		default:
			t.Fatalf("event %+v", e)
		}
	}
}

// recreate deletes a stream and creates it again.
func recreate(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), stream.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
}

// The revisions of a recreated bucket start again at 1. The watch must not take its new
// records for old ones, even if it has as many as before.
func TestWatchOfARecreatedBucketStartsOver(t *testing.T) {
	t.Parallel()
	for name, writes := range map[string][]string{
		"with fewer revisions": {"old"}, "with as many revisions": {"old", "new", "newer"}, "with more revisions": {"old", "new", "newer", "newest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through, beside, p, js := behindProxy(t)
			for _, nonce := range []string{"old", "older", "oldest"} {
				if _, err := beside.Nodes().Write(t.Context(), kvtest.Node(nonce, nonce), 0); err != nil {
					t.Fatal(err)
				}
			}
			events := watchNodes(t, through)
			await(t, events, "ready", isReady)
			p.Cut()
			recreate(t, js, "KV_cronce_nodes")
			for _, node := range writes {
				if _, err := beside.Nodes().Write(t.Context(), kvtest.Node(node, "again"), 0); err != nil {
					t.Fatal(err)
				}
			}
			p.Heal()
			e := await(t, events, "old again", func(e exchange.NodeEvent) bool { return e.Name == "old" })
			for range 2 {
				await(t, events, "the others gone", func(e exchange.NodeEvent) bool { return e.Gone })
			}
			if e.Revision != 1 || e.Node.Nonce != "again" {
				t.Fatalf("event %+v, want the new record at revision 1", e)
			}
		})
	}
}

func TestWatchEndsWhenTheBucketIsGone(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(*testing.T, jetstream.JetStream, *kv.Store){
		"deleted": func(t *testing.T, js jetstream.JetStream, _ *kv.Store) {
			if err := js.DeleteStream(t.Context(), "KV_cronce_jobs"); err != nil {
				t.Fatal(err)
			}
		},
		"created again, with as many revisions": func(t *testing.T, js jetstream.JetStream, beside *kv.Store) {
			recreate(t, js, "KV_cronce_jobs")
			if _, err := beside.Jobs().Write(t.Context(), kvtest.Definition("j", "2"), 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through, beside, p, js := behindProxy(t)
			if _, err := beside.Jobs().Write(t.Context(), kvtest.Definition("j", "1"), 0); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			ready := make(chan struct{}, 1)
			go func() {
				ended <- through.Jobs().Watch(t.Context(), func(e plans.RegistryEvent) {
					if e.Ready {
						ready <- struct{}{}
					}
				})
			}()
			<-ready
			p.Cut() // otherwise only the next audit would notice the removal
			replace(t, js, beside)
			p.Heal()
			select {
			case err := <-ended:
				if !errors.Is(err, wire.ErrGone) {
					t.Errorf("got %v", err)
				}
			case <-within(t, 10*time.Second).Done():
				t.Error("the watch goes on")
			}
		})
	}
}

// The leader of the ledger's stream stops in the middle of a series of writes. Each write
// is settled, by its answer or by its nonce.
func TestWritesOutliveTheLeader(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	s := open(t, c.JetStream(), kv.Options{})
	leader := c.Leader("KV_cronce_ledger")
	ctx := within(t, 50*time.Second)
	down := make(chan struct{})
	const writes = 300
	revision := uint64(0)
	for i := range writes {
		if i == writes/3 {
			go func() {
				defer close(down)
				leader.Stop()
			}()
		}
		next, err := s.Ledger().Write(ctx, kvtest.Record(0, fmt.Sprint(i)), revision)
		if err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		if next <= revision {
			t.Fatalf("write %d: revision %d after %d", i, next, revision)
		}
		revision = next
	}
	<-down
	r, rev, err := s.Ledger().Read(ctx, kvtest.Record(0, "").Slot)
	if err != nil || rev != revision || r.Nonce != fmt.Sprint(writes-1) {
		t.Fatalf("read %q at %d, %v; want the last write at %d", r.Nonce, rev, err, revision)
	}
}
