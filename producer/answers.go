package producer

import (
	"sync"
	"time"
)

// answers are what the broker has said and the shift has not taken in yet. They are
// as many as there are publications in flight, at most.
type answers struct {
	came chan struct{} // has room for one: something has come

	mu         sync.Mutex
	all, taken []answer
}

type answer struct {
	*item
	sent      time.Time
	duplicate bool
	err       error
}

// put is called by whoever has an answer; it does not block.
func (as *answers) put(a answer) {
	as.mu.Lock()
	as.all = append(as.all, a)
	as.mu.Unlock()
	select {
	case as.came <- struct{}{}:
	default:
	}
}

// take returns what has come since it was last called, which stays as it is until it
// is called again.
func (as *answers) take() []answer {
	as.mu.Lock()
	defer as.mu.Unlock()
	clear(as.taken)
	as.all, as.taken = as.taken[:0], as.all
	return as.taken
}
