package replica

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/fleet/node"
)

// queues are the queues that the replica works on, with notification of changes. It is safe for
// concurrent use.
type queues struct {
	mu      sync.Mutex
	names   []string // never modified
	changed chan struct{}
}

func newQueues(names []string) *queues {
	return &queues{names: names, changed: make(chan struct{})}
}

func (q *queues) set(names []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Equal(q.names, names) {
		q.names = slices.Clone(names)
		close(q.changed)
		q.changed = make(chan struct{})
	}
}

func (q *queues) get() (names []string, changed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.names, q.changed
}

func (q *queues) list() []string {
	names, _ := q.get()
	return names
}

// SetQueues replaces the queues that this replica works on. It does not wait. If a queue is left
// out, the replica takes no more of its slots, and lets the running ones finish. The next
// heartbeat writes the new queues into the node's record. It may be called at any time.
func (r *Replica) SetQueues(names []string) { r.queues.set(names) }

// claimAnswers answers requests about the claims and the output of a node, from serve until stop. A
// node without queues has no claims, and perhaps no permission to subscribe.
type claimAnswers struct {
	r    *Replica
	node string
	end  func() // nil: it does not serve
}

func (c *claimAnswers) serve() error {
	if c.end != nil {
		return nil
	}
	claims, err := c.r.cfg.Store.ServeClaims(c.node, c.r.table)
	if err != nil {
		return err
	}
	output, err := c.r.cfg.Store.ServeOutput(c.node, c.r.table)
	if err != nil {
		claims()
		return err
	}
	c.end = func() { claims(); output() }
	return nil
}

func (c *claimAnswers) stop() {
	if c.end != nil {
		c.end()
	}
}

// workers runs a consumer for each queue until ctx ends. Queues may come and go.
func (r *Replica) workers(ctx, life context.Context, n *node.Node, answers *claimAnswers) error {
	group, ctx := errgroup.WithContext(ctx)
	running := map[string]*consumer.Consumer{}
	alerting := false
	for {
		names, changed := r.queues.get()
		if len(names) > 0 && !alerting {
			if err := answers.serve(); err != nil {
				return err
			}
			alerting = true
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
