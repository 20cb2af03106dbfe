package consumer

import (
	"context"
	"sync"
)

// places counts the handlers that may still be started. What is asked of the
// broker is what is taken from here, so no message ever waits in this process
// while its AckWait runs.
type places struct{ free chan struct{} }

func newPlaces(n int) *places {
	p := &places{make(chan struct{}, n)}
	p.put(n)
	return p
}

// take waits for a free place and takes all that are free.
func (p *places) take(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case <-p.free:
	}
	n := 1
	for {
		select {
		case <-p.free:
			n++
		default:
			return n
		}
	}
}

// lend is one place that was taken, as what gives it back: once, however often it
// is called.
func (p *places) lend() (free func()) { return sync.OnceFunc(func() { p.put(1) }) }

func (p *places) put(n int) {
	for range n {
		p.free <- struct{}{}
	}
}
