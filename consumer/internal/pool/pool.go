// Package pool keeps idle goroutines for reuse.
package pool

import "sync"

// Pool runs functions on goroutines, and keeps up to maxIdle idle goroutines for reuse. A new
// goroutine begins with a small stack, and growing it costs much CPU. The goroutine that became
// idle last gets the next function, so that few stacks occupy the CPU's cache. A pool is safe
// for concurrent use.
type Pool struct {
	maxIdle int

	mu     sync.Mutex
	idle   []chan func() // one for each idle goroutine
	closed bool
}

func New(maxIdle int) *Pool { return &Pool{maxIdle: maxIdle} }

// Do runs f at once, on an idle goroutine or on a new one, and does not wait for it.
func (p *Pool) Do(f func()) {
	p.mu.Lock()
	last := len(p.idle) - 1
	if last < 0 {
		p.mu.Unlock()
		go p.worker(f)
		return
	}
	free := p.idle[last]
	p.idle = p.idle[:last]
	p.mu.Unlock()
	free <- f // this does not block: the channel is empty and has room for one function
}

// worker runs functions until enough goroutines are idle, or the pool is closed.
func (p *Pool) worker(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		p.mu.Lock()
		enough := p.closed || len(p.idle) >= p.maxIdle
		if !enough {
			p.idle = append(p.idle, next)
		}
		p.mu.Unlock()
		if enough {
			return
		}
		f = <-next
	}
}

// Close ends the idle goroutines, and the others when their functions return.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, next := range p.idle {
		close(next)
	}
	p.idle = nil
}
