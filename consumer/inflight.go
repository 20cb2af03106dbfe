package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// inflight holds the messages that this consumer has received and not answered. It marks each
// of them as in progress every third of a lease, so that the broker does not deliver it to
// another worker.
//
// If a message was published more than a third of a lease before it arrived, its first mark is
// sent after markSoon already. A broker that has restarted or changed leaders counts AckWait
// from the message's publication until the first mark arrives, and could deliver the message
// again at once. The claim makes that harmless, so slots that end within markSoon are not
// marked.
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

// mark sends the marks until ctx ends. It sends none while the node is not trusted, because
// they would keep the slots from workers that may take them over.
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
			_ = msg.InProgress() // the broker does not answer a mark; after a lost one the next follows
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
