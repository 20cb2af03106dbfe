package replica

import (
	"context"
	"sync"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

// variable is a value with a signal for its changes. It is safe for concurrent use.
type variable[T any] struct {
	equal func(a, b T) bool

	mu      sync.Mutex
	value   T
	changed chan struct{} // closed and replaced at each change
}

func newVariable[T any](value T, equal func(a, b T) bool) *variable[T] {
	return &variable[T]{equal: equal, value: value, changed: make(chan struct{})}
}

func (v *variable[T]) set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.equal(v.value, value) {
		v.value = value
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

func (v *variable[T]) get() T {
	value, _ := v.watch()
	return value
}

// watch returns the value, and a channel that is closed when the value changes.
func (v *variable[T]) watch() (value T, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.changed
}

// watchNodes watches the heartbeats of the fleet while watchesNodes is true, until ctx ends or the
// watch fails.
func (r *Replica) watchNodes(ctx context.Context) error {
	for {
		on, changed := r.watchesNodes.watch()
		watching, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		if on {
			go func() {
				ended <- r.peers.Watch(watching, r.cfg.Store.Nodes(), func(e exchange.NodeEvent) {
					r.beats.stamped(e)
					r.zones.note(e)
				})
			}()
		}
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
		case err = <-ended:
			on = false
		}
		stop()
		if on {
			err = <-ended
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}
