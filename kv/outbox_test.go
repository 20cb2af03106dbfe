package kv

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/natstest"
)

// Many who send at once leave nothing behind, and each one's messages come in the
// order in which it sent them.
func TestWhatManySendAtOnceAllLeavesInOrder(t *testing.T) {
	t.Parallel()
	const senders, each = 50, 200
	s := natstest.Run(t)
	nc := s.Conn()
	ear := s.Conn()
	heard, err := ear.SubscribeSync("told.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := ear.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := heard.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	o := &outbox{conn: nc}
	var sending sync.WaitGroup
	for i := range senders {
		sending.Go(func() {
			for n := range each {
				if err := o.send(outgoing{subject: fmt.Sprintf("told.%d", i), data: fmt.Append(nil, n)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	next := map[string]int{}
	for range senders * each {
		m, err := heard.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(m.Data); got != fmt.Sprint(next[m.Subject]) {
			t.Fatalf("%s: %s came, want %d", m.Subject, got, next[m.Subject])
		}
		next[m.Subject]++
	}
}

// A write is not kept for a broker that is away: it would be stored long after who
// asked has given up. Whoever asked is told at once.
func TestWhatIsAskedWhileTheBrokerIsAwayIsNotKept(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	nc := s.Conn(nats.ReconnectWait(time.Hour))
	p := newPipe(nc)
	s.Stop()
	natstest.Eventually(t, 10*time.Second, "the client to notice", func() bool { return !nc.IsConnected() })
	began := time.Now()
	if _, err := asked(t, p, "told"); !errors.Is(err, nats.ErrDisconnected) {
		t.Errorf("asked of nobody: %v", err)
	}
	if took := time.Since(began); took > attemptTimeout/2 {
		t.Errorf("told after %v", took)
	}
	if n, _ := nc.Buffered(); n > 0 {
		t.Errorf("%d bytes wait for the broker to come back", n)
	}
}

// asked waits for what is told of a question.
func asked(t *testing.T, p *pipe, subject string) (answer *nats.Msg, err error) {
	told := make(chan struct{})
	p.ask(t.Context(), &nats.Msg{Subject: subject}, func(m *nats.Msg, failed error) {
		answer, err = m, failed
		close(told) // which panics when it is told twice
	})
	<-told
	return answer, err
}

// One who is refused has others' questions go on, and every question ends.
func TestEveryQuestionEnds(t *testing.T) {
	t.Parallel()
	nc := natstest.Run(t).Conn()
	if _, err := nc.Subscribe("answered", func(m *nats.Msg) { _ = m.Respond([]byte("+OK")) }); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.SubscribeSync("heard"); err != nil {
		t.Fatal(err)
	}
	p := newPipe(nc)
	var asking sync.WaitGroup
	for range 100 {
		for subject, want := range map[string]error{"answered": nil, "heard": nats.ErrTimeout, "not a subject": nats.ErrBadSubject} {
			asking.Go(func() {
				if _, err := asked(t, p, subject); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", subject, err, want)
				}
			})
		}
	}
	asking.Wait()
	if len(p.open) > 0 {
		t.Errorf("%d questions are left open", len(p.open))
	}
}
