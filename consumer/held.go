package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// held is the messages in hand. Each is marked as in progress when it comes and
// then regularly, so that the broker does not give it to somebody else.
//
// The first mark, at once, is not for the timer: a broker that restarts or
// changes leaders counts AckWait from the message's age, unless a mark told it
// better, and would deliver again what was only just delivered.
type held struct {
	mu   sync.Mutex
	msgs map[jetstream.Msg]struct{}
}

func newHeld() *held { return &held{msgs: map[jetstream.Msg]struct{}{}} }

func (h *held) add(msg jetstream.Msg) {
	h.mu.Lock()
	h.msgs[msg] = struct{}{}
	h.mu.Unlock()
	_ = msg.InProgress() // unanswered by nature; the next one is on its way
}

func (h *held) remove(msg jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.msgs, msg)
}

// keep marks all messages in hand every interval until ctx ends. A node that is
// not trusted marks nothing: it would keep its slots from those that may have
// them.
func (h *held) keep(ctx context.Context, interval time.Duration, trusted func() bool) {
	tick := time.NewTicker(interval)
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
		h.mu.Lock()
		msgs := make([]jetstream.Msg, 0, len(h.msgs))
		for msg := range h.msgs {
			msgs = append(msgs, msg)
		}
		h.mu.Unlock()
		for _, msg := range msgs {
			_ = msg.InProgress()
		}
	}
}
