package replica

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/consumer"
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
