package kv_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// listener records what a source delivers.
type listener struct {
	t *testing.T
	*stream.Source
	mu    sync.Mutex
	msgs  []string // payloads
	reply []string
	ends  []error
}

func listen(t *testing.T, s *kv.Store, priority, lanes int) *listener {
	t.Helper()
	source, err := s.Slots().Source(within(t, 10*time.Second), "default", priority)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, Source: source}
	err = source.Listen(lanes, func(_ int, m jetstream.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.msgs, l.reply = append(l.msgs, string(m.Data())), append(l.reply, m.Reply())
		_ = m.Ack()
	}, func(_ int, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends = append(l.ends, err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *listener) got() (msgs []string, ends []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(msgs, l.msgs...), append(ends, l.ends...)
}

func (l *listener) ask(lane, n int, d time.Duration) {
	l.t.Helper()
	if err := l.Ask(lane, n, d); err != nil {
		l.t.Fatal(err)
	}
}

// awaits waits for at least msgs messages and ends ended requests.
func (l *listener) awaits(msgs, ends int) {
	l.t.Helper()
	defer func() {
		if l.t.Failed() {
			m, e := l.got()
			l.t.Logf("%d messages came, %q, and %d ends, %v", len(m), m, len(e), e)
		}
	}()
	natstest.Eventually(l.t, fmt.Sprintf("%d messages and %d ends", msgs, ends), func() bool {
		m, e := l.got()
		return len(m) >= msgs && len(e) >= ends
	})
}

// offers makes each message of the test binary unique.
var offers atomic.Int64

func offer(t *testing.T, s *kv.Store, n int) {
	t.Helper()
	for i := range n {
		m := core.Message{Slot: job.NewSlot("report", time.Now()), Offer: int(offers.Add(1))}
		if _, err := s.Slots().Publish(within(t, 10*time.Second), "default", m, []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARequestEndsServedOrWithItsTime(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	l := listen(t, s, 0, 2)
	l.ask(0, 3, 10*time.Second)
	l.ask(1, 1, 100*time.Millisecond)
	l.awaits(0, 1)
	offer(t, s, 3)
	l.awaits(3, 1)
	l.ask(0, 1, 100*time.Millisecond)
	l.awaits(3, 2)
	if msgs, ends := l.got(); len(msgs) != 3 || len(ends) != 2 || ends[0] != nil || ends[1] != nil {
		t.Errorf("messages %q, ends %v; want three and two that are no errors", msgs, ends)
	}
}

// A deposed leader may deliver a message for a request that has ended. The source passes it
// on. The end of the old request does not end the new one.
func TestWhatComesAfterItsRequestIsOverIsHandedOn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	nc := srv.Conn()
	asked := make(chan *nats.Msg, 2)
	s := open(t, srv.JetStream(), kv.Options{})
	l := listen(t, s, 0, 1)
	spy, err := nc.ChanSubscribe("$JS.API.CONSUMER.MSG.NEXT.cronce_slots.default", asked)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = spy.Unsubscribe() }()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l.ask(0, 1, 100*time.Millisecond)
	old := <-asked
	l.awaits(0, 1)
	l.ask(0, 1, 10*time.Second)
	status := &nats.Msg{Subject: old.Reply, Header: nats.Header{"Status": {"409"}, "Description": {"Leadership Change"}}}
	late := &nats.Msg{Subject: old.Reply, Reply: "ack.late", Data: []byte("late")}
	for _, m := range []*nats.Msg{status, late} {
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	l.awaits(1, 1)
	if msgs, ends := l.got(); msgs[0] != "late" || len(ends) != 1 {
		t.Errorf("messages %q, ends %v; want the late message, and no end of the request that stands", msgs, ends)
	}
}

func TestWhatIsTakenBackIsDeliveredToOthers(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	first, second := listen(t, s, 0, 1), listen(t, s, 0, 1)
	first.ask(0, 100, time.Minute)
	offer(t, s, 5)
	first.awaits(5, 0)
	if err := first.Leave(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	second.ask(0, 100, time.Minute)
	offer(t, s, 5)
	second.awaits(5, 0)
	if msgs, _ := first.got(); len(msgs) != 5 {
		t.Errorf("the one that left got %d messages, want 5", len(msgs))
	}
}

// standing waits until n requests stand at the default queue.
func standing(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	queue, err := js.Consumer(t.Context(), "cronce_slots", "default")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the requests to stand", func() bool {
		info, err := queue.Info(t.Context())
		return err == nil && info.NumWaiting == n
	})
}

func TestAQueueThatIsGoneEndsItsRequests(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	l := listen(t, s, 0, 2)
	l.ask(0, 1, time.Hour)
	standing(t, js, 1)
	if err := js.DeleteConsumer(t.Context(), "cronce_slots", "default"); err != nil {
		t.Fatal(err)
	}
	l.awaits(0, 1)
	l.ask(1, 1, time.Hour)
	l.awaits(0, 2)
	if _, ends := l.got(); ends[0] == nil || ends[1] == nil {
		t.Errorf("ends %v, want two errors", ends)
	}
}

func TestWhoHasTheLowerPriorityIsServedFirst(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	standby, main := listen(t, s, 5, 1), listen(t, s, 0, 1)
	standby.ask(0, 100, time.Minute)
	main.ask(0, 10, time.Minute)
	standing(t, js, 2) // a message that arrives before a request goes to the other listener
	offer(t, s, 15)
	main.awaits(10, 0)
	standby.awaits(5, 0)
	main.ask(0, 10, time.Minute)
	standing(t, js, 2)
	offer(t, s, 5)
	main.awaits(15, 0)
	if err := main.Leave(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	offer(t, s, 5)
	standby.awaits(10, 0)
}

// If a server does not support priorities, its queues have none.
func TestPrioritiesNeedAServerThatKnowsThem(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	old := open(t, srv.JetStream(natstest.Version("2.11.9")), kv.Options{})
	_, err := old.Slots().Source(t.Context(), "default", 3)
	if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "2.12") {
		t.Errorf("priority 3 on 2.11: %v", err)
	}
	l := listen(t, old, 0, 1)
	l.ask(0, 1, time.Minute)
	offer(t, old, 1)
	l.awaits(1, 0)

	// After the server's upgrade the queues should have priorities, and Setup adds them.
	js := srv.JetStream()
	if _, err := open(t, js, kv.Options{}).Slots().Source(t.Context(), "default", 0); !errors.Is(err, job.ErrMismatch) {
		t.Errorf("a queue without priorities: %v", err)
	}
	if _, err := space.Setup(t.Context(), js, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	l = listen(t, open(t, js, kv.Options{}), 3, 1)
	l.ask(0, 1, time.Minute)
	offer(t, old, 1)
	l.awaits(1, 0)
	for _, bad := range []int{-1, 10} {
		if err := old.CheckPriority(bad); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("priority %d: %v", bad, err)
		}
	}
}

// A leader that steps down ends the open requests. The source requests again. Each message
// arrives at least once.
func TestASourceOutlivesTheLeaderOfItsQueue(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	js := c.JetStream()
	s := open(t, js, kv.Options{})
	l := listen(t, s, 0, 1)
	l.ask(0, 100, time.Minute)
	offer(t, s, 3)
	ended := 0 // the first requests may end before all servers have the queue
	natstest.Eventually(t, "3 messages", func() bool {
		m, ends := l.got()
		if len(ends) > ended {
			ended = len(ends)
			l.ask(0, 100, time.Minute)
		}
		return len(m) >= 3
	})
	stepDown(t, c)
	l.awaits(3, ended+1)
	if _, ends := l.got(); ends[ended] != nil {
		t.Fatalf("the end says %v, want that the next leader can be asked", ends[ended])
	}
	l.ask(0, 100, time.Minute)
	offer(t, s, 3)
	l.awaits(6, ended+1)
}

func stepDown(t *testing.T, c *natstest.Cluster) {
	t.Helper()
	for _, srv := range c.Servers {
		if srv.JetStreamIsConsumerLeader(server.DEFAULT_GLOBAL_ACCOUNT, "cronce_slots", "default") {
			_, err := c.JetStream().Conn().RequestWithContext(within(t, 10*time.Second),
				"$JS.API.CONSUMER.LEADER.STEPDOWN.cronce_slots.default", nil)
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no leader")
}

// A server closes a connection for which more than 64 MiB wait, and a client drops messages beyond that.
func TestARequestIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t, func(o *server.Options) { o.MaxPayload = 1 << 20 }).JetStream(), kv.Options{})
	const n, size = 40, 200 << 10
	publish := func(size int) {
		t.Helper()
		m := core.Message{Slot: job.NewSlot("report", time.Now()), Offer: int(offers.Add(1))}
		if _, err := s.Slots().Publish(within(t, 10*time.Second), "default", m, []byte(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		publish(size)
	}
	l := listen(t, s, 0, 1)
	requests := 0
	for got := 0; got < n; requests++ {
		l.ask(0, n-got, natstest.Patience)
		natstest.Eventually(t, "the end of a request", func() bool {
			msgs, ends := l.got()
			return len(ends) > requests || len(msgs) == n
		})
		msgs, ends := l.got()
		if brought := (len(msgs) - got) * size; brought == 0 || brought > 3<<20 {
			t.Fatalf("request %d brought %d bytes", requests, brought)
		}
		if len(ends) > 0 && ends[len(ends)-1] != nil {
			t.Fatalf("request %d ended with %v", requests, ends[len(ends)-1])
		}
		got = len(msgs)
	}
	if requests < 3 {
		t.Errorf("%d requests for %d bytes, want at least 3", requests, n*size)
	}
}

// A server may have stored a message before its max_payload was lowered.
func TestAMessageThatIsLargerThanARequestArrives(t *testing.T) {
	t.Parallel()
	var now *server.Options
	srv := natstest.Run(t, func(o *server.Options) { o.MaxPayload, now = 8<<20, o })
	s := open(t, srv.JetStream(), kv.Options{})
	m := core.Message{Slot: job.NewSlot("report", time.Now())}
	if _, err := s.Slots().Publish(within(t, 10*time.Second), "default", m, []byte(strings.Repeat("x", 5<<20))); err != nil {
		t.Fatal(err)
	}
	lowered := *now
	lowered.Port = srv.Addr().(*net.TCPAddr).Port
	lowered.NoSigs, lowered.NoLog, lowered.MaxPayload = true, true, 64<<10
	if err := srv.ReloadOptions(&lowered); err != nil {
		t.Fatal(err)
	}
	small := open(t, srv.JetStream(), kv.Options{})
	if most := small.MaxPayload(); most != 64<<10 {
		t.Fatalf("max_payload is %d", most)
	}
	l := listen(t, small, 0, 1)
	for asked := 0; ; asked++ {
		l.ask(0, 1, natstest.Patience)
		natstest.Eventually(t, "the message, or the end of the request", func() bool {
			msgs, ends := l.got()
			return len(msgs) == 1 || len(ends) > asked
		})
		if msgs, ends := l.got(); len(msgs) == 1 || len(ends) > 4 {
			if len(msgs) != 1 {
				t.Errorf("no message after %d requests, %v", len(ends), ends)
			}
			return
		}
	}
}
