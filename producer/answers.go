package producer

import (
	"sync"
	"time"
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
	select {
	case as.ready <- struct{}{}:
	default:
	}
}

// take returns the answers since the last call. The slice is valid until the next call.
func (as *answers) take() []answer {
	as.mu.Lock()
	defer as.mu.Unlock()
	clear(as.taken)
	as.all, as.taken = as.taken[:0], as.all
	return as.taken
}
