package board

import (
	"context"
	"sync"
	"time"
)

// Later computes values that take long, in the background, one at a time. It keeps those that were
// asked for last. It is safe for concurrent use; set its fields before.
type Later[K comparable, T any] struct {
	// Context ends the computations.
	Context context.Context

	// Every is the age from which on a value is computed again when it is asked for. A value that
	// took long is computed less often: after twenty times what it took.
	Every time.Duration

	// Most bounds the values that are kept, at least 1.
	Most int

	ended sync.WaitGroup

	mu     sync.Mutex
	values map[K]*value[T]
	one    chan struct{} // has an element while a value is computed
}

type value[T any] struct {
	result  Result[T]
	took    time.Duration
	asked   time.Time
	tried   time.Time     // when the last computation that ended began; zero: none has
	running chan struct{} // nil: it is not being computed
}

// Result is a value as it was computed last.
type Result[T any] struct {
	// Value is valid if Ready. At is when its computation began.
	Value T
	Ready bool
	At    time.Time

	// Err is why the last computation failed. Running reports that another one is on its way.
	Err     error
	Running bool
}

// computeTime bounds a computation.
const computeTime = 2 * time.Minute

// Get returns the value of a key. It waits for the first one, or for one whose computation began at
// notBefore or later, at most for patience.
func (l *Later[K, T]) Get(ctx context.Context, key K, notBefore time.Time, patience time.Duration, compute func(context.Context) (T, error)) Result[T] {
	l.mu.Lock()
	if l.values == nil {
		l.values, l.one = map[K]*value[T]{}, make(chan struct{}, 1)
	}
	v := l.values[key]
	if v == nil {
		l.evict()
		v = &value[T]{}
		l.values[key] = v
	}
	v.asked = time.Now()
	due := time.Since(v.tried) > max(l.Every, 20*v.took) || v.tried.Before(notBefore)
	if due && v.running == nil && l.Context.Err() == nil {
		v.running = make(chan struct{})
		l.ended.Go(func() { l.run(v, compute) })
	}
	running, r := v.running, v.result
	r.Running = running != nil
	l.mu.Unlock()
	if running == nil || r.Ready && !r.At.Before(notBefore) || patience <= 0 {
		return r
	}
	asked := time.Now()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-ctx.Done():
		patience = 0
	case <-t.C:
	case <-running:
	}
	return l.Get(ctx, key, notBefore, patience-time.Since(asked), compute) // it may have begun before
}

// evict makes room for one more value.
func (l *Later[K, T]) evict() {
	for len(l.values) >= max(1, l.Most) {
		var oldest K
		var found *value[T]
		for k, v := range l.values {
			if v.running == nil && (found == nil || v.asked.Before(found.asked)) {
				oldest, found = k, v
			}
		}
		if found == nil {
			return // all are being computed
		}
		delete(l.values, oldest)
	}
}

func (l *Later[K, T]) run(v *value[T], compute func(context.Context) (T, error)) {
	l.one <- struct{}{}
	defer func() { <-l.one }()
	ctx, cancel := context.WithTimeout(l.Context, computeTime)
	defer cancel()
	began := time.Now()
	t, err := compute(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	v.took, v.tried = time.Since(began), began
	if v.result.Err = err; err == nil {
		v.result.Value, v.result.Ready, v.result.At = t, true, v.tried
	}
	close(v.running)
	v.running = nil
}

// Wait waits until nothing is computed any more. The context must have ended.
func (l *Later[K, T]) Wait() { l.ended.Wait() }
