package replica_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/producer"
)

// standbyDelay is long enough for a machine that is busy with other tests. Package producer tests the
// default, with a fake clock.
const standbyDelay = 1500 * time.Millisecond

// member is a producer on a connection of its own.
type member struct {
	*producer.Producer
	nc   *nats.Conn
	stop func() error
}

func newMember(t testing.TB, srv *natstest.Server, name string, delay time.Duration) *member {
	t.Helper()
	nc := srv.Conn()
	store := kvtest.Open(t, natstest.JetStream(t, nc), kv.Options{})
	p, err := producer.New(producer.Config{
		Node: name, Started: time.Now(), Registry: store.Jobs(), Watermark: store.Watermark(), Slots: store.Slots(),
		Peers: store.Announcements(), Clock: wall{}, StandbyDelay: delay,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	m := &member{Producer: p, nc: nc, stop: sync.OnceValue(func() error { cancel(); return <-ended })}
	t.Cleanup(func() {
		if err := m.stop(); err != nil && !nc.IsClosed() {
			t.Errorf("%s: %v", name, err)
		}
	})
	return m
}

// published subscribes to the slots that producers publish. next returns the next one.
func (s *site) published() (next func() *nats.Msg) {
	s.Helper()
	messages := make(chan *nats.Msg, 1<<16)
	nc := s.srv.Conn()
	if _, err := nc.ChanSubscribe("cronce.slot.>", messages); err != nil {
		s.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		s.Fatal(err)
	}
	return func() *nats.Msg { return waitFor(s, "a slot", messages) }
}

// define writes n jobs to the registry that run each second.
func (s *site) define(n int) {
	s.Helper()
	store := kvtest.Open(s, s.srv.JetStream(), kv.Options{})
	for i := range n {
		j := job.Job{Name: fmt.Sprint("job", i), Schedule: "* * * * * *"}
		d, _, err := plans.Upsert(nil, j, "operator", "test", true)
		if err != nil {
			s.Fatal(err)
		}
		d.Nonce = j.Name
		if _, err := store.Jobs().Write(s.Context(), d, 0); err != nil {
			s.Fatal(err)
		}
	}
}

// The connection is back long before the producer asks for it. It may be to a server that was
// restarted, or that others have published to.
func TestAProducerNoticesAConnectionThatIsRestoredAtOnce(t *testing.T) {
	s := newSite(t)
	said := map[exchange.AnnouncementKind]chan string{exchange.AnnounceAsk: make(chan string, 1<<16), exchange.AnnounceHere: make(chan string, 1<<16)}
	store := kvtest.Open(t, s.srv.JetStream(), kv.Options{Want: job.Settings{Lease: s.lease}})
	stop, err := store.Announcements().Listen(func(a exchange.Announcement) {
		if heard := said[a.Kind]; heard != nil {
			heard <- a.Node
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	nc, _, _ := s.replica(func(context.Context, job.Run) error { return nil }, func(c *replica.Config) { c.Queues = nil })
	waitFor(s, "the producer to ask the others at its start", said[exchange.AnnounceAsk])
	waitFor(s, "the producer to take part", said[exchange.AnnounceHere])
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	waitFor(s, "the producer to ask the others after its reconnect", said[exchange.AnnounceAsk])
}
