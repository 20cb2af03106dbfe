package board

import (
	"context"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// Background computes slow values in the background, one at a time, and keeps those that were asked
// for last. Set its fields before the first use; then it is safe for concurrent use.
type Background[K comparable, T any] struct {
	// Context ends the computations.
	Context context.Context

	// Every is how old a value may get. Get has an older one computed again, but not before twenty
	// times the duration of its computation has passed, or four times if that failed.
	Every time.Duration

	// Max bounds the values that are kept, at least 1.
	Max int

	ended sync.WaitGroup

	mu     sync.Mutex
	values map[K]*value[T]
	limit  chan struct{} // has an element while a value is computed
}

type value[T any] struct {
	result  Result[T]
	took    time.Duration
	asked   time.Time
	tried   time.Time     // when the last computation that has ended began; zero: none has ended
	running chan struct{} // closed when the running computation ends; nil: none runs
	began   time.Time     // when the running computation began to wait for its turn
}

// Result is a value as it was computed last.
type Result[T any] struct {
	// Value is valid if Ready is true. At is when its computation began.
	Value T
	Ready bool
	At    time.Time

	// Err is why the last computation failed. Running reports whether another one runs or waits for its
	// turn, and Began since when.
	Err     error
	Running bool
	Began   time.Time
}

// computeTime bounds a computation.
const computeTime = 2 * time.Minute

// Get returns the value of a key. It waits for at most patience for the first value, or for one
// whose computation began at notBefore or later. If Max other values are being computed, Get begins no
// computation: the caller must ask again.
func (b *Background[K, T]) Get(ctx context.Context, key K, notBefore time.Time, patience time.Duration, compute func(context.Context) (T, error)) Result[T] {
	b.mu.Lock()
	if b.values == nil {
		b.values, b.limit = map[K]*value[T]{}, make(chan struct{}, 1)
	}
	v := b.values[key]
	if v == nil {
		if !b.evict() {
			b.mu.Unlock()
			return Result[T]{Running: true, Began: time.Now()}
		}
		v = &value[T]{}
		b.values[key] = v
	}
	v.asked = time.Now()
	pause := 20 * v.took
	if v.result.Err != nil {
		pause = 4 * v.took
	}
	due := time.Since(v.tried) > max(b.Every, pause) || v.tried.Before(notBefore)
	if due && v.running == nil && b.Context.Err() == nil {
		v.running, v.began = make(chan struct{}), time.Now()
		b.ended.Go(func() { b.run(v, compute) })
	}
	running, r := v.running, v.result
	if r.Running = running != nil; r.Running {
		r.Began = v.began
	}
	b.mu.Unlock()
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
	return b.Get(ctx, key, notBefore, patience-time.Since(asked), compute) // the computation may have begun before notBefore
}

// evict makes room for one more value. It reports whether there is room.
func (b *Background[K, T]) evict() bool {
	for len(b.values) >= max(1, b.Max) {
		var oldest K
		var found *value[T]
		for k, v := range b.values {
			if v.running == nil && (found == nil || v.asked.Before(found.asked)) {
				oldest, found = k, v
			}
		}
		if found == nil {
			return false // all are being computed
		}
		delete(b.values, oldest)
	}
	return true
}

func (b *Background[K, T]) run(v *value[T], compute func(context.Context) (T, error)) {
	b.limit <- struct{}{}
	defer func() { <-b.limit }()
	ctx, cancel := context.WithTimeout(b.Context, computeTime)
	defer cancel()
	began := time.Now()
	t, err := compute(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	v.took, v.tried = time.Since(began), began
	if v.result.Err = err; err == nil {
		v.result.Value, v.result.Ready, v.result.At = t, true, v.tried
	}
	close(v.running)
	v.running = nil
}

// Wait waits until all computations have ended. The context must have ended before.
func (b *Background[K, T]) Wait() { b.ended.Wait() }

const (
	// minJobs is the number of jobs from which fillFrequent saves time.
	minJobs = 32

	// maxRecords bounds the records of the pass, for each job.
	maxRecords = 2 * Recent

	// enough is how many slots of a job the pass must find. A job with fewer runs rarely, and is read
	// by itself.
	enough = Recent / 3
)

// fillFrequent fills the jobs that run often with one pass over the newest records of all jobs, and
// returns the others. To read each job by itself costs the broker a pass for each job: more than a
// minute for 1,000 jobs that run each minute and a million records.
func (r reader) fillFrequent(ctx context.Context, empty []*Job) (rest []*Job, err error) {
	if len(empty) < minJobs {
		return empty, nil
	}
	found, missing := make(map[string][]client.SlotRow, len(empty)), len(empty)
	for _, j := range empty {
		found[j.Job] = make([]client.SlotRow, 0, Recent)
	}
	n := 0
	for s, err := range r.client.LastWritten(ctx) {
		switch rows, wanted := found[s.Job]; {
		case exchange.IsUnreadable(err):
			continue // one record cannot be read
		case err != nil:
			return nil, err
		case !wanted || len(rows) == Recent:
		default:
			if s.Output = ""; len(rows)+1 == Recent {
				missing--
			}
			found[s.Job] = append(rows, s)
		}
		if n++; missing == 0 || n == maxRecords*len(empty) {
			break
		}
	}
	for _, j := range empty {
		if j.merge(nil, found[j.Job]); len(j.Recent) < enough {
			rest = append(rest, j)
		}
	}
	return rest, nil
}
