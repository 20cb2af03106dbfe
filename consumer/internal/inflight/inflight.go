// Package inflight keeps the messages of a worker from being delivered again while it works on
// them.
package inflight

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Messages holds the messages that this consumer has received and not answered. It marks each
// of them as in progress every third of a lease, so that the broker does not deliver it to
// another worker.
//
// If a message was published more than a third of a lease before it arrived, Messages sends its
// first mark as early as markSoon after it arrived. A broker that has restarted or changed
// leaders counts AckWait from the message's publication until the first mark arrives, and could
// deliver the message again at once. The claim makes that harmless, so slots that end within
// markSoon are not marked.
type Messages struct {
	every time.Duration

	mu   sync.Mutex
	msgs map[*Message]struct{}
}

const markSoon = 250 * time.Millisecond

type Message struct {
	msg  jetstream.Msg
	next time.Time // of the next mark
}

func New(lease time.Duration) *Messages {
	return &Messages{every: lease / 3, msgs: map[*Message]struct{}{}}
}

// Add enters a message. age is how long ago it was published, by the broker's clock.
func (f *Messages) Add(m *Message, msg jetstream.Msg, age time.Duration) {
	*m = Message{msg, time.Now().Add(f.every)}
	if age > f.every {
		m.next = time.Now().Add(min(markSoon, f.every))
	}
	f.mu.Lock()
	f.msgs[m] = struct{}{}
	f.mu.Unlock()
}

func (f *Messages) Remove(m *Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.msgs, m)
}

// Mark sends the marks until ctx ends. It sends none while the node is not trusted, because
// they would keep the slots from workers that may take them over.
func (f *Messages) Mark(ctx context.Context, trusted func() bool) {
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
			_ = msg.InProgress() // the broker does not answer a mark; if one is lost, the next one is sent in time
		}
	}
}

// due returns the messages that are to be marked now.
func (f *Messages) due(now time.Time) (msgs []jetstream.Msg) {
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
