package kv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// A server answers 1.2 s late. Every write, read, publication and pass still succeeds.
func TestSlownessIsNotDeathOnARealServer(t *testing.T) {
	t.Parallel()
	through, _, p, _ := behindProxy(t)
	p.Lag(1200 * time.Millisecond)
	ctx := within(t, 2*time.Minute)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			revision, err := through.Ledger().Write(ctx, kvtest.Record(i, fmt.Sprint(i)), 0)
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
			if _, got, err := through.Ledger().Read(ctx, kvtest.Record(i, "").Slot); err != nil || got != revision {
				t.Errorf("read: revision %d, %v; want %d", got, err, revision)
			}
			if _, err := through.Slots().Put(ctx, "default", core.Message{Slot: kvtest.Record(i, "").Slot, Node: "n"}, nil); err != nil {
				t.Errorf("publish: %v", err)
			}
		})
	}
	all.Wait()
	n := 0
	for _, err := range through.Ledger().List(ctx, kv.ListFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 50 {
		t.Errorf("listed %d records, want 50", n)
	}
}

// stalled returns a namespace whose connection has a socket that accepts no data. Its
// client holds the connection's lock while it writes to that socket.
func stalled(t *testing.T) (through, beside *kv.Store, heal func()) {
	t.Helper()
	through, beside, p, _ := behindProxy(t)
	if _, err := through.Ledger().Write(t.Context(), kvtest.Record(0, "first"), 0); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	return through, beside, p.Heal
}

// fill publishes on the store's connection until the socket is full and the writer blocks.
// After that, the connection takes no further message.
func fill(t *testing.T, s *kv.Store) {
	t.Helper()
	for {
		for range 64 {
			_ = s.Emit(job.Event{Kind: "noise", Error: strings.Repeat("x", 64<<10)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := s.Flush(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// No request with a deadline waits for a blocked socket. When the socket drains, a request
// whose context has ended is not sent.
func TestAnAbandonedWriteIsNotSentLater(t *testing.T) {
	t.Parallel()
	through, beside, heal := stalled(t)
	fill(t, through)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	abandoned := kvtest.Record(1, "abandoned")
	ended := make(chan error, 4)
	go func() { _, err := through.Ledger().Write(ctx, abandoned, 0); ended <- err }()
	go func() { _, _, err := through.Ledger().Read(ctx, abandoned.Slot); ended <- err }()
	go func() { _, err := through.Time(ctx); ended <- err }()
	go func() {
		for _, err := range through.Ledger().List(ctx, kv.ListFilter{}) {
			ended <- err
		}
	}()
	within := time.After(time.Minute) // the socket accepts no data for over a minute
	for range cap(ended) {
		select {
		case err := <-ended:
			if !errors.Is(err, job.ErrUnknown) {
				t.Errorf("ended with %v, want that it is unknown", err)
			}
		case <-within:
			t.Fatal("a request with a context of half a second waits for the socket")
		}
	}
	through.Connected()
	through.Reconnects()
	heal()
	if err := through.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := through.Ledger().Write(t.Context(), kvtest.Record(2, "later"), 0); err != nil { // the writer sends this after everything before it
		t.Fatal(err)
	}
	if _, _, err := beside.Ledger().Read(t.Context(), abandoned.Slot); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the abandoned write was stored: %v", err)
	}
}

// The sender of an alert takes a deadline as a sign that a subscriber has the alert, and acks it.
func TestRequestThatWasNotSentHasNoDeadlineExceeded(t *testing.T) {
	t.Parallel()
	through, _, heal := stalled(t)
	fill(t, through)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := through.Request(ctx, nats.NewMsg("elsewhere"))
	heal()
	if errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, job.ErrUnknown) {
		t.Errorf("the error is %v, want %v", err, job.ErrUnknown)
	}
}

// While the socket accepts no data, the client holds its connection's lock. Each call still
// ends with its context: Open, requests, Listen and Leave as well as writes.
func TestNoCallWithADeadlineWaitsForTheLockOfTheConnection(t *testing.T) {
	t.Parallel()
	through, _, p, _ := behindProxy(t)
	source, err := through.Slots().Source(t.Context(), "default", 0)
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := through.Alerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	js := kv.JetStreamOf(through)
	p.Stall()
	defer p.Heal() // otherwise closing the connection blocks
	fill(t, through)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	slot := kvtest.Record(0, "").Slot
	type call struct {
		name string
		err  error
	}
	calls := map[string]func() error{
		"open":       func() error { _, err := kv.Open(ctx, js, kv.Options{}); return err },
		"setup":      func() error { _, err := space.Setup(ctx, js, kv.Options{}); return err },
		"request":    func() error { _, err := through.Request(ctx, nats.NewMsg("elsewhere")); return err },
		"ask holds":  func() error { _, err := through.AskHolds(ctx, "n1", slot, 1); return err },
		"ask cancel": func() error { _, err := through.AskCancel(ctx, "n1", core.CancelRequest{ID: slot.ID()}); return err },
		"listen and leave": func() error {
			err := source.Listen(2, func(int, jetstream.Msg) {}, func(int, error) {})
			if err == nil {
				err = source.Leave(ctx)
			}
			return err
		},
		"groups": func() error {
			<-ctx.Done()
			return alerts.Groups(ctx, 1, time.Second, func([]jetstream.Msg) error { return nil })
		},
		"priorities": func() error { <-ctx.Done(); _ = through.CheckPriority(1); return ctx.Err() },
	}
	ended := make(chan call, len(calls))
	for name, f := range calls {
		go func() { ended <- call{name, f()} }()
	}
	// The lock is held for a minute. A call that takes the lock ends after this one.
	free := make(chan struct{})
	go func() { js.Conn().IsConnected(); close(free) }()
	for range len(calls) {
		select {
		case c := <-ended:
			delete(calls, c.name)
			if c.err == nil {
				t.Errorf("%s: no error", c.name)
			}
		case <-free:
			t.Fatalf("these waited until the lock was free: %v", slices.Collect(maps.Keys(calls)))
		}
	}
}
