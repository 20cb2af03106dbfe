package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}

// site is one namespace on one server.
type site struct {
	*testing.T
	srv   *natstest.Server
	lease time.Duration
}

func newSite(t *testing.T) *site {
	t.Parallel()
	return &site{t, natstest.Run(t), 2 * time.Second}
}

// replica runs a replica with the job "report", which is due each second. edit changes its
// configuration. ended delivers the result of Run.
func (s *site) replica(h job.Handler, edit func(*replica.Config)) (nc *nats.Conn, stop context.CancelFunc, ended <-chan error) {
	s.Helper()
	nc = s.srv.Conn()
	js, err := jetstream.New(nc)
	if err != nil {
		s.Fatal(err)
	}
	store := kvtest.Open(s, js, kv.Options{Want: job.Settings{Lease: s.lease}})
	cfg := replica.Config{
		Store: store, Owner: "code", Produce: true, Queues: []string{"default"}, Grace: 10 * time.Second,
		Jobs:     []job.Job{{Name: "report", Schedule: "* * * * * *", Retry: job.Retry{Attempts: 1}}},
		Handler:  func(string) job.Handler { return h },
		Handlers: func() []string { return []string{"report"} },
	}
	if edit != nil {
		edit(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var ending sync.WaitGroup
	ending.Go(func() { done <- replica.New(cfg).Run(ctx) })
	s.Cleanup(func() { stop(); ending.Wait() })
	return nc, stop, done
}

// waitFor returns the next value, or ends the test.
func waitFor[T any](s *site, what string, from <-chan T) T {
	s.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(natstest.Patience):
		s.Fatalf("%s: not in %v", what, natstest.Patience)
		panic("unreachable")
	}
}

// Invariant 4: without heartbeats no handler may act, however long the grace period is.
func TestHandlersEndAtOnceWhenTheConnectionIsClosed(t *testing.T) {
	s := newSite(t)
	started, ended := make(chan struct{}, 100), make(chan error, 100)
	nc, _, done := s.replica(func(ctx context.Context, _ job.Run) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}, nil)
	waitFor(s, "a start", started)
	nc.Close()
	closed := time.Now()
	if cause := waitFor(s, "the end of the handler's context", ended); !errors.Is(cause, job.ErrLeaseLost) {
		t.Errorf("cause %v, want %v", cause, job.ErrLeaseLost)
	}
	if took := time.Since(closed); took > 2*time.Second {
		t.Errorf("the handler's context outlived the close by %v, and its lease of 2s", took)
	}
	if err := waitFor(s, "the end of Run", done); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Run returned %v", err)
	}
}

// Nothing can end the handler. The replica stops without it, after the grace period and a few seconds.
func TestAHandlerThatIgnoresItsContextDelaysTheStopOnce(t *testing.T) {
	const grace = time.Second
	for _, onLeaseLost := range []job.LeaseLost{job.LeaseLostCancel, job.LeaseLostFinish} {
		t.Run(string(onLeaseLost), func(t *testing.T) {
			s := newSite(t)
			started, free := make(chan struct{}, 100), make(chan struct{})
			defer close(free)
			_, stop, done := s.replica(func(context.Context, job.Run) error { started <- struct{}{}; <-free; return nil }, func(c *replica.Config) {
				c.Grace, c.Jobs[0].OnLeaseLost = grace, onLeaseLost
			})
			waitFor(s, "a start", started)
			stop()
			began := time.Now()
			if err := waitFor(s, "the end of Run", done); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > grace+5*time.Second+3*time.Second {
				t.Errorf("stopping took %v with a grace of %v", took, grace)
			}
		})
	}
}

func TestADeletedQueueIsCreatedAgain(t *testing.T) {
	s := newSite(t)
	ran := make(chan job.Slot, 1000)
	s.replica(func(_ context.Context, run job.Run) error { ran <- run.Slot; return nil }, nil)
	waitFor(s, "a slot", ran)
	if err := s.srv.JetStream().DeleteConsumer(t.Context(), "cronce_slots", "default"); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	for slot := waitFor(s, "a slot", ran); slot.At.Before(deleted); slot = waitFor(s, "a slot after the deletion", ran) {
		continue
	}
}

func TestAQueueOfOtherSettingsEndsRunWithTheCommandThatFixesIt(t *testing.T) {
	s := newSite(t)
	s.srv.JetStream() // waits until the server is ready
	_, stop, done := s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) { c.Queues = nil })
	stop()
	if err := waitFor(s, "the end of the first", done); err != nil {
		t.Fatal(err)
	}
	_, err := s.srv.JetStream().CreateConsumer(t.Context(), "cronce_slots", jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: "cronce.slot.default.>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _, done = s.replica(func(context.Context, job.Run) error { return nil }, nil)
	err = waitFor(s, "the end of Run", done)
	if !errors.Is(err, job.ErrMismatch) || !strings.Contains(err.Error(), "cronce setup") {
		t.Errorf("Run returned %v, want %v and the command", err, job.ErrMismatch)
	}
}

// A node whose local clock is a day fast publishes no future slots and expires none.
func TestAWrongLocalClockDecidesNothing(t *testing.T) {
	s := newSite(t)
	ran := make(chan job.Slot, 1000)
	s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) { c.Queues = nil })
	s.replica(func(_ context.Context, run job.Run) error { ran <- run.Slot; return nil }, func(c *replica.Config) {
		c.ClockShift = 25 * time.Hour
	})
	waitFor(s, "a slot run by the node with the wrong clock", ran)
	js := s.srv.JetStream()
	ledger, err := js.KeyValue(t.Context(), "cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ledger.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		entry, err := ledger.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := exchange.DecodeRecord(entry.Value())
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == job.Expired || rec.Slot.At.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s: %s", rec.Slot, rec.State)
		}
	}
}

// The broker is away for longer than the lease. The replica loses its name, but no slots.
func TestAReplicaGoesOnUnderANewNameAfterALostLease(t *testing.T) {
	s := newSite(t)
	nodes, lost := make(chan string, 1000), make(chan error, 1000)
	s.replica(func(ctx context.Context, run job.Run) error {
		nodes <- run.Node
		<-ctx.Done() // it ends with the lease
		lost <- context.Cause(ctx)
		return ctx.Err()
	}, func(c *replica.Config) { c.Grace = -1 })
	first := waitFor(s, "a slot", nodes)
	s.srv.Stop()
	if cause := waitFor(s, "the end of the lease", lost); !errors.Is(cause, job.ErrLeaseLost) {
		t.Errorf("cause %v, want %v", cause, job.ErrLeaseLost)
	}
	s.srv.Start()
	for node := first; node == first; node = waitFor(s, "a slot under a new name", nodes) {
		continue
	}
}

// A rolling upgrade of many nodes would otherwise log many warnings.
func TestEachOtherReleaseOfTimeZoneDataIsLoggedOnce(t *testing.T) {
	s := newSite(t)
	var log strings.Builder
	ran := make(chan job.Slot, 1000)
	_, stop, done := s.replica(func(_ context.Context, run job.Run) error { ran <- run.Slot; return nil }, func(c *replica.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	waitFor(s, "a slot", ran)
	nodes, err := s.srv.JetStream().KeyValue(t.Context(), "cronce_nodes")
	if err != nil {
		t.Fatal(err)
	}
	for name, release := range map[string]string{"old-1": "1999x", "old-2": "1999x", "new-1": "2099x", "same": tzdata.Version} {
		for beat := range 2 {
			value, err := json.Marshal(exchange.Node{
				Name: name, State: exchange.NodeAlive, Lease: time.Hour, Tzdata: release, Nonce: fmt.Sprint(name, beat),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := nodes.Put(t.Context(), name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	written := time.Now()
	for slot := waitFor(s, "a slot", ran); slot.At.Before(written.Add(time.Second)); slot = waitFor(s, "a slot", ran) {
		continue
	}
	stop()
	if err := waitFor(s, "the end of Run", done); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "time zone data"); n != 2 || !strings.Contains(log.String(), "1999x") || !strings.Contains(log.String(), "2099x") {
		t.Errorf("want a warning for each of two releases, got %d:\n%s", n, log.String())
	}
}

// The owner ends the handler within a second, and records the slot as cancelled, with the cause.
func TestARunningSlotEndsWhenItsNodeIsAskedToCancel(t *testing.T) {
	s := newSite(t)
	started, ended := make(chan job.Run, 100), make(chan error, 100)
	s.replica(func(ctx context.Context, run job.Run) error {
		started <- run
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, func(c *replica.Config) { c.Jobs[0].Retry.Attempts = 3 })
	run := waitFor(s, "a start", started)
	store := kvtest.Open(t, s.srv.JetStream(), kv.Options{})
	asked := time.Now()
	answer, err := store.AskCancel(t.Context(), run.Node, core.CancelRequest{ID: run.Slot.ID(), Fence: run.Fence, By: "alice"})
	if err != nil || !answer.Ending {
		t.Fatalf("answer %+v, %v", answer, err)
	}
	cause := waitFor(s, "the end of the handler's context", ended)
	if took := time.Since(asked); took > time.Second || !errors.Is(cause, job.ErrCancelled) {
		t.Errorf("the context ended after %v with %v", took, cause)
	}
	natstest.Eventually(t, "the slot's outcome", func() bool {
		rec, _, err := store.Ledger().Read(t.Context(), run.Slot)
		return err == nil && rec.State == job.Cancelled && rec.Error == "cancelled by alice: context canceled"
	})
}
