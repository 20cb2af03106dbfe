package kv

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// listen calls f for each message on subject, one call at a time, until stop is called.
// Neither listen nor stop waits for the connection: the transport's writer subscribes and
// unsubscribes, in order with the other messages that it sends.
func (w wire) listen(subject string, f func(*nats.Msg)) (stop func(), err error) {
	if w.link().isClosed() {
		return nil, fmt.Errorf("listen on %s: %w", subject, nats.ErrConnectionClosed)
	}
	var over atomic.Bool
	var sub *nats.Subscription // used only by the writer
	w.transport.do(func(conn port) {
		if !over.Load() {
			sub, _ = conn.Subscribe(subject, func(m *nats.Msg) { // it fails only if the connection is closed
				if !over.Load() {
					f(m)
				}
			})
		}
	})
	return func() {
		if !over.Swap(true) {
			w.transport.do(func(port) {
				if sub != nil {
					_ = sub.Unsubscribe()
				}
			})
		}
	}, nil
}

// aside runs f, which may block on the connection's lock, in a goroutine and waits for at
// most a second. A late f ends when it gets the lock.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	late := time.NewTimer(attemptTimeout)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
}
