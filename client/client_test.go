package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/lab/natstest"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}

var now = time.Date(2026, 3, 28, 12, 0, 30, 0, time.UTC)

// place is a namespace in memory with the client of one operator.
type place struct {
	*client.Client
	store *memstore.Store

	// meanwhile is called once, between the reads and the first write.
	meanwhile func()
	mu        *sync.Mutex
}

func newPlace(t *testing.T, operator string) *place {
	t.Helper()
	return place{store: memstore.New()}.as(operator)
}

// as returns the same namespace with the client of another operator.
func (p place) as(operator string) *place {
	p.meanwhile, p.mu = nil, &sync.Mutex{}
	p.Client = client.Attach(attach.Parts{
		Jobs: meddled{p.store.Jobs(), &p}, Nodes: p.store.Nodes(), Handlers: p.store.HandlerLists(), Ledger: p.store.Ledger(),
		Settings: job.Settings{}.WithDefaults(), Operator: operator,
		Now: func(context.Context) (time.Time, error) { return now, nil },
	})
	return &p
}

// meddled is a registry in which another operator writes first.
type meddled struct {
	*memstore.Jobs
	place *place
}

func (m meddled) meddle() {
	m.place.mu.Lock() // several writes run concurrently, and must all come after meanwhile
	defer m.place.mu.Unlock()
	if f := m.place.meanwhile; f != nil {
		m.place.meanwhile = nil
		f()
	}
}

func (m meddled) Write(ctx context.Context, d plans.Definition, revision uint64) (uint64, error) {
	m.meddle()
	return m.Jobs.Write(ctx, d, revision)
}

func (m meddled) Delete(ctx context.Context, name string, revision uint64) error {
	m.meddle()
	return m.Jobs.Delete(ctx, name, revision)
}

// define stores a job over any stored one.
func (p *place) define(t *testing.T, j job.Job, owner, node string) {
	t.Helper()
	_, revision, err := p.store.Jobs().Read(t.Context(), j.Name)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	d := plans.Definition{Job: j, Owner: owner, Node: node, Nonce: node + time.Now().String()}
	if _, err := p.store.Jobs().Write(t.Context(), d, revision); err != nil {
		t.Fatal(err)
	}
}

func hourly(name string) job.Job { return job.Job{Name: name, Schedule: "@hourly"} }

func TestRemoveLeavesAnEditThatCameBetween(t *testing.T) {
	t.Parallel()
	alice := newPlace(t, "alice@a")
	alice.define(t, hourly("report"), "file", "web1")
	alice.meanwhile = func() { alice.define(t, job.Job{Name: "report", Schedule: "@daily"}, "operator", "bob@b") }

	err := alice.Remove(t.Context(), "report", client.RemoveOptions{})
	var conflict *client.ConflictError
	if !errors.Is(err, job.ErrConflict) || !errors.As(err, &conflict) || conflict.By != "bob@b" || conflict.Owner != "operator" {
		t.Fatalf("got %v, want a conflict with bob@b", err)
	}
	if e, _, err := alice.store.Jobs().Read(t.Context(), "report"); err != nil || e.Job.Schedule != "@daily" {
		t.Errorf("what stands there is %+v, %v, want bob's edit", e, err)
	}
}

func TestRemoveOfWhatIsRemovedMeanwhileSaysSo(t *testing.T) {
	t.Parallel()
	alice := newPlace(t, "alice@a")
	alice.define(t, hourly("report"), "file", "web1")
	alice.meanwhile = func() {
		if err := alice.as("bob@b").Remove(t.Context(), "report", client.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}
	err := alice.Remove(t.Context(), "report", client.RemoveOptions{})
	if !errors.Is(err, job.ErrConflict) || !strings.Contains(err.Error(), "job report was removed meanwhile") {
		t.Errorf("got %v, want a conflict with a removal", err)
	}
	if err := alice.Remove(t.Context(), "report", client.RemoveOptions{}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the second time: %v, want not found", err)
	}
}

func TestRemoveRefusesInvalidNames(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "alice@a")
	for _, name := range []string{"", "*", ">", "a.b", "a b", "a\nb", "\x00", `"`, "'; rm -rf /", "ü", strings.Repeat("a", 65)} {
		if err := p.Remove(t.Context(), name, client.RemoveOptions{}); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("remove %q: %v, want invalid", name, err)
		}
	}
}

// A program may make a client for each request.
func TestClientsOfAConnectionShareWhatTheyLeaveOnIt(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	kvtest.Open(t, srv.JetStream(), kv.Options{})
	var depth, reported int
	nc := srv.Conn(nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {
		reported++
		depth = runtime.Callers(0, make([]uintptr, 500))
	}))
	open := func(n int) (frames, subscriptions int) {
		for range n {
			c, err := client.New(t.Context(), nc)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "@hourly"}}, client.ApplyOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		nc.ErrorHandler()(nc, nil, nats.ErrSlowConsumer)
		return depth, nc.NumSubscriptions()
	}
	frames, subscriptions := open(1)
	if moreFrames, more := open(20); moreFrames > frames || more > subscriptions {
		t.Errorf("21 clients: %d subscriptions, and %d frames up to the error handler of the connection's owner; one client: %d and %d", more, moreFrames, subscriptions, frames)
	}
	if reported != 2 {
		t.Errorf("the owner's error handler was called %d times for 2 errors", reported)
	}
}

func TestAsLeavesNothingOnTheConnection(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	kvtest.Open(t, srv.JetStream(), kv.Options{})
	nc := srv.Conn()
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	subscriptions := nc.NumSubscriptions()
	for i := range 20 {
		other, err := c.As(fmt.Sprint("user", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "@hourly"}}, client.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := nc.NumSubscriptions(); n > subscriptions {
		t.Errorf("%d subscriptions, and %d before", n, subscriptions)
	}
}
