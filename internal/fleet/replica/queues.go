package replica

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
)

// SetQueues replaces the queues that this replica works on. It does not wait. If a queue is left
// out, the replica takes no more of its slots, and lets the running ones finish. The next
// heartbeat writes the new queues into the node's record. It may be called at any time.
func (r *Replica) SetQueues(names []string) { r.queues.set(slices.Clone(names)) }

// workers runs a consumer for each queue until ctx ends. Queues may come and go.
func (r *Replica) workers(ctx, life context.Context, n *node.Node) error {
	group, ctx := errgroup.WithContext(ctx)
	running := map[string]*consumer.Consumer{}
	var stopAnswers func()
	defer func() {
		if stopAnswers != nil {
			stopAnswers()
		}
	}()
	for {
		names, changed := r.queues.watch()
		if len(names) > 0 && stopAnswers == nil {
			var err error
			if stopAnswers, err = r.answerAboutClaims(n.Name()); err != nil {
				return err
			}
			group.Go(func() error { r.alerts().Run(ctx); return nil })
		}
		for _, queue := range names {
			if running[queue] == nil {
				c := r.consumer(life, n, queue)
				running[queue] = c
				group.Go(func() error { return c.Run(ctx) })
			}
		}
		for queue, c := range running {
			if !slices.Contains(names, queue) {
				c.Retire()
				delete(running, queue)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// answerAboutClaims answers requests about the claims and the output of a node until stop is
// called. A node without queues has no claims, and perhaps no permission to subscribe.
func (r *Replica) answerAboutClaims(node string) (stop func(), err error) {
	stopClaims, err := r.cfg.Store.ServeClaims(node, r.table)
	if err != nil {
		return nil, err
	}
	stopOutput, err := r.cfg.Store.ServeOutput(node, r.table)
	if err != nil {
		stopClaims()
		return nil, err
	}
	return func() { stopClaims(); stopOutput() }, nil
}

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
