package cronce

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/job"
)

const (
	// maxFailures bounds the queue of failures for the error hook.
	maxFailures = 1000

	// hookGrace bounds how long Run waits, when it ends, for the error hook to empty the queue.
	hookGrace = 5 * time.Second
)

// failures queues failures and calls the error hook, one failure after the other, on a goroutine
// that runs only while the queue is not empty. It is safe for concurrent use.
type failures struct {
	hook func(job.Failure)
	log  *slog.Logger

	dropped atomic.Uint64

	mu      sync.Mutex
	waiting []job.Failure
	idle    chan struct{} // closed when the goroutine ends; nil: it does not run
}

// add reports a failure. It does not block.
func (f *failures) add(one job.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == maxFailures {
		f.dropped.Add(1)
		return
	}
	f.waiting = append(f.waiting, one)
	if f.idle == nil {
		f.idle = make(chan struct{})
		go f.run(f.idle)
	}
}

// run calls the hook until the queue is empty.
func (f *failures) run(idle chan struct{}) {
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 {
			f.idle = nil
			f.mu.Unlock()
			close(idle)
			return
		}
		one := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.mu.Unlock()
		called := make(chan struct{})
		go f.call(one, called)
		<-called
		if n := f.dropped.Swap(0); n > 0 {
			f.log.Warn("failures not reported: the error hook is too slow", "count", n)
		}
	}
}

// call calls the hook, on a goroutine of its own since the hook may end its goroutine.
func (f *failures) call(one job.Failure, called chan<- struct{}) {
	defer close(called)
	defer func() {
		if p := recover(); p != nil {
			f.log.Error("the error hook panicked", "slot", one.Slot.ID(), "error", fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	f.hook(one)
}

// flush waits until the queue is empty, for at most hookGrace.
func (f *failures) flush() {
	f.mu.Lock()
	idle := f.idle
	f.mu.Unlock()
	if idle == nil {
		return
	}
	late := time.NewTimer(hookGrace)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C:
		f.log.Warn("stopped before the error hook returned", "after", hookGrace)
	}
}
