package kv

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// listen calls f for each message on subject, one call at a time, until stop is called.
// Neither waits for the connection: the writer subscribes and ends the subscription, in
// the order of what else is sent.
func (w wire) listen(subject string, f func(*nats.Msg)) (stop func(), err error) {
	if w.link().isClosed() {
		return nil, fmt.Errorf("listen on %s: %w", subject, nats.ErrConnectionClosed)
	}
	var over atomic.Bool
	var sub *nats.Subscription // only the writer uses it
	w.transport.do(func(conn port) {
		if !over.Load() {
			sub, _ = conn.Subscribe(subject, func(m *nats.Msg) { // it fails with the connection, which ends all
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

// aside runs what may wait for the connection's lock, and waits for it for a second at
// most: it ends by itself when the lock is free.
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
