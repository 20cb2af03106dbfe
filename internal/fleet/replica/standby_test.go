package replica_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
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
	store, err := kv.Open(t.Context(), natstest.JetStream(t, nc), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	store, err := kv.Open(s.Context(), s.srv.JetStream(), kv.Options{})
	if err != nil {
		s.Fatal(err)
	}
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

// Eight producers publish each slot once. When one of them loses its connection, the others publish its
// share at once.
func TestEightProducersPublishOneCopyAndCoverForOneThatIsCutOff(t *testing.T) {
	const jobs, seconds = 50, 6
	s := newSite(t)
	s.define(jobs)
	next := s.published()
	var all []*member
	for i := range 8 {
		all = append(all, newMember(t, s.srv, fmt.Sprint("n", i), standbyDelay))
	}
	natstest.Eventually(t, "eight producers to agree", func() bool {
		return slices.IndexFunc(all, (*member).First) == 0 && all[1].Stats().StoodBy > 0 && all[4].Stats().StoodBy > 0
	})
	settled := time.Now().Truncate(time.Second).Add(2 * time.Second)
	copies, shares := map[string]int{}, map[string]int{}
	at := func(m *nats.Msg) time.Time {
		slot, err := job.ParseSlotID(m.Header.Get(core.HeaderSlot))
		if err != nil {
			t.Fatal(err)
		}
		return slot.At
	}
	for m := next(); at(m).Before(settled.Add(seconds * time.Second)); m = next() {
		if !at(m).Before(settled) {
			copies[m.Header.Get(core.HeaderSlot)]++
			shares[m.Header.Get("Cronce-Node")]++
		}
	}
	sum := 0
	for _, n := range copies {
		sum += n
	}
	t.Logf("%d publications of %d slots, shares %v", sum, len(copies), shares)
	if len(copies) < jobs*(seconds-1) || sum > len(copies)*102/100 || len(shares) != 5 {
		t.Errorf("%d publications of %d slots by %d producers", sum, len(copies), len(shares))
	}

	all[1].nc.Close()
	cut := time.Now()
	_ = all[1].stop() // its watch fails with the connection
	late := map[string]time.Duration{}
	seen := map[string]bool{}
	for m := next(); at(m).Before(cut.Add(4 * time.Second)); m = next() {
		if id := m.Header.Get(core.HeaderSlot); !seen[id] {
			seen[id] = true
			late[id] = time.Since(at(m))
		}
	}
	for id, d := range late {
		if d > 2*standbyDelay {
			t.Errorf("%s came %v late", id, d)
		}
	}
	for i := range jobs {
		name := fmt.Sprint("job", i)
		for at := cut.Truncate(time.Second).Add(time.Second); at.Before(cut.Add(3 * time.Second)); at = at.Add(time.Second) {
			if id := job.NewSlot(name, at).ID(); !seen[id] {
				t.Errorf("%s is missing", id)
			}
		}
	}
}
