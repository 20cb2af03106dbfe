//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import "sync"

// queue hands values to another goroutine, in order. put never waits.
type queue[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	values []T
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.filled.L = &q.mu
	return q
}

func (q *queue[T]) put(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.values = append(q.values, v)
	q.filled.Signal()
}

// take waits for a value.
func (q *queue[T]) take() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.values) == 0 {
		q.filled.Wait()
	}
	v := q.values[0]
	var none T
	q.values[0] = none
	q.values = q.values[1:]
	return v
}
