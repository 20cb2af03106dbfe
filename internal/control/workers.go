package control

import (
	"context"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Workers are the live nodes that run slots.
type Workers []worker

// worker is one of them. A node may have handlers for many thousands of jobs.
type worker struct {
	core.Node
	handlers map[string]bool
}

// Workers asks who works as of the broker's time now. A node that has been silent
// for its lease is not counted, though only a fence proves that it is dead.
func (c *Control) Workers(ctx context.Context, now time.Time) (Workers, error) {
	events, err := c.cfg.Nodes.List(ctx)
	c.cfg.Alive()
	var live Workers
	for _, e := range events {
		if e.Err == nil && e.Node.Worker && e.Node.State == core.NodeAlive && now.Sub(e.Time) <= e.Node.Lease {
			handlers := make(map[string]bool, len(e.Node.Handlers))
			for _, name := range e.Node.Handlers {
				handlers[name] = true
			}
			live = append(live, worker{e.Node, handlers})
		}
	}
	return live, err
}

// Of returns the names of those that would run the job: they have a handler for
// it and work on its queue.
func (w Workers) Of(j job.Job) []string {
	j = j.WithDefaults()
	var names []string
	for _, n := range w {
		if n.handlers[j.Name] && slices.Contains(n.Queues, j.Queue) {
			names = append(names, n.Name)
		}
	}
	return names
}
