package producer

import (
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// answers are the broker's answers that the session has not taken in yet: at most as many
// as publications are in flight.
type answers struct {
	ready chan struct{} // holds one signal

	mu         sync.Mutex
	all, taken []answer
}

type answer struct {
	*item
	sent      time.Time
	duplicate bool
	err       error
}

// put adds an answer. It does not block, and any goroutine may call it.
func (as *answers) put(a answer) {
	as.mu.Lock()
	as.all = append(as.all, a)
	as.mu.Unlock()
	core.TrySend(as.ready, struct{}{})
}

// take returns the answers since the last call. The slice is valid until the next call.
func (as *answers) take() []answer {
	as.mu.Lock()
	defer as.mu.Unlock()
	clear(as.taken)
	as.all, as.taken = as.taken[:0], as.all
	return as.taken
}

// takeAnswers takes in the broker's answers since the last call.
func (o *outbox) takeAnswers() {
	all := o.answers.take()
	for _, a := range all {
		if len(a.audited) > 0 {
			o.concludeAudit(a)
		}
		switch {
		case a.item.state == done: // it is back on the agenda, or is an audit of a resting producer
		case a.err != nil:
			o.retryLater(a.item, a.err)
		default:
			o.p.stats.acknowledged(a.item, a.duplicate)
			o.p.cfg.Stored(a.item.def.queue, a.item.message(o.p.cfg.Node))
			o.complete(a.item)
		}
	}
	o.inFlight -= len(all)
	if n := len(all); n > 0 {
		o.oldest, o.took = all[n-1].sent, time.Since(all[n-1].sent)
		o.adapt(n, all[n-1].err)
	}
}

// adapt fits the window to the last of the answers that just arrived. The window grows while
// the broker answers fast. It shrinks if the broker is slow or refuses a publication: a server
// limits how many messages may wait to be stored in a stream.
func (o *outbox) adapt(answered int, err error) {
	switch {
	case err != nil || o.took > slowAnswer:
		o.window = max(o.window-answered, leastInFlight)
	case o.took < fastAnswer:
		o.window = min(o.window+answered, maxInFlight)
	}
}
