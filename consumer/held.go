package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// held is the messages in hand. Each is marked as in progress from time to time,
// so that the broker does not give it to somebody else: a third of a lease after
// it came, and every third of a lease from there.
//
// One that is older than that when it comes is marked soon. That is not for the
// timer: a broker that restarts or changes leaders counts AckWait from the
// message's age, unless a mark told it better, and would deliver again what was
// only just delivered. The claim makes that harmless, so that a slot which is done
// sooner is worth no mark.
type held struct {
	every time.Duration

	mu   sync.Mutex
	msgs map[*holding]struct{}
}

// markSoon is when a message that came late is first marked.
const markSoon = 250 * time.Millisecond

// holding is one message in hand.
type holding struct {
	msg  jetstream.Msg
	next time.Time // when it is marked next
}

func newHeld(lease time.Duration) *held {
	return &held{every: lease / 3, msgs: map[*holding]struct{}{}}
}

// add takes in a message that was published so long ago, by the broker's clock.
func (h *held) add(one *holding, msg jetstream.Msg, age time.Duration) {
	*one = holding{msg, time.Now().Add(h.every)}
	if age > h.every {
		one.next = time.Now().Add(min(markSoon, h.every))
	}
	h.mu.Lock()
	h.msgs[one] = struct{}{}
	h.mu.Unlock()
}

func (h *held) remove(one *holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.msgs, one)
}

// keep marks what is to be marked until ctx ends. A node that is not trusted marks
// nothing: it would keep its slots from those that may have them.
func (h *held) keep(ctx context.Context, trusted func() bool) {
	tick := time.NewTicker(min(markSoon, h.every/4))
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
		for _, msg := range h.due(time.Now()) {
			_ = msg.InProgress() // unanswered by nature; the next one is on its way
		}
	}
}

// due are the messages to be marked now.
func (h *held) due(now time.Time) (msgs []jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.msgs {
		if !now.Before(one.next) {
			msgs = append(msgs, one.msg)
			one.next = now.Add(h.every)
		}
	}
	return msgs
}
