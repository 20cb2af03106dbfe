package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// inflight is the messages that this consumer has and has not answered. It marks each as
// in progress, so that the broker does not deliver it to another worker: a third of a
// lease after it came, and then every third of a lease.
//
// A message that is older than that when it comes is marked after markSoon. A broker that
// restarts or changes leaders counts AckWait from the message's age, unless a mark told it
// better, and would deliver the message again at once. The claim makes that harmless, so a
// slot that is done sooner is worth no mark.
type inflight struct {
	every time.Duration

	mu   sync.Mutex
	msgs map[*inflightMsg]struct{}
}

const markSoon = 250 * time.Millisecond

type inflightMsg struct {
	msg  jetstream.Msg
	next time.Time // of the next mark
}

func newInflight(lease time.Duration) *inflight {
	return &inflight{every: lease / 3, msgs: map[*inflightMsg]struct{}{}}
}

// add enters a message. age is how long ago it was published, by the broker's clock.
func (f *inflight) add(m *inflightMsg, msg jetstream.Msg, age time.Duration) {
	*m = inflightMsg{msg, time.Now().Add(f.every)}
	if age > f.every {
		m.next = time.Now().Add(min(markSoon, f.every))
	}
	f.mu.Lock()
	f.msgs[m] = struct{}{}
	f.mu.Unlock()
}

func (f *inflight) remove(m *inflightMsg) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.msgs, m)
}

// mark sends the marks until ctx ends. A node that is not trusted sends none: it would
// keep its slots from workers that may have them.
func (f *inflight) mark(ctx context.Context, trusted func() bool) {
	tick := time.NewTicker(min(markSoon, f.every/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !trusted() {
			continue
		}
		for _, msg := range f.due(time.Now()) {
			_ = msg.InProgress() // it has no answer; if it is lost, the next one follows
		}
	}
}

// due returns the messages that are to be marked now.
func (f *inflight) due(now time.Time) (msgs []jetstream.Msg) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m := range f.msgs {
		if !now.Before(m.next) {
			msgs = append(msgs, m.msg)
			m.next = now.Add(f.every)
		}
	}
	return msgs
}
