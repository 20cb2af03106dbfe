package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/job"
)

// handlerLists stores lists of handlers. kv.HandlerLists implements it.
type handlerLists interface {
	Read(ctx context.Context, node string) (exchange.Handlers, uint64, error)
	Write(ctx context.Context, list exchange.Handlers, revision uint64) (uint64, error)
}

// handlerList keeps the stored list of an incarnation's handlers up to date. The list only serves
// diagnoses, so nothing waits for its write.
type handlerList struct {
	store handlerLists
	node  string
	names func() []string
	log   *slog.Logger

	stored   []string // as last written
	revision uint64
	writes   int
	denied   bool // a warning was logged
}

// run writes the list, and again when it has changed, until ctx ends. It looks for a change in each
// interval: handlers come and go by calls and with the job file.
func (l *handlerList) run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		l.update(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// update writes the list if it has changed. If that fails, the next call tries again.
func (l *handlerList) update(ctx context.Context) {
	names := l.names()
	if slices.Equal(names, l.stored) {
		return
	}
	l.writes++
	list := exchange.Handlers{Node: l.node, Jobs: names, Nonce: fmt.Sprintf("%s/handlers/%d", l.node, l.writes)}
	revision, err := l.store.Write(ctx, list, l.revision)
	switch {
	case err == nil:
		l.stored, l.revision = names, revision
	case errors.Is(err, job.ErrConflict):
		// Only this node writes the list. An earlier write was stored after all, or a person has changed it.
		_, l.revision, _ = l.store.Read(ctx, l.node)
	case errors.Is(err, job.ErrDenied) && !l.denied:
		l.denied = true
		l.log.Warn("cannot list the handlers of this node: others report that its jobs have none", "node", l.node, "error", err,
			"fix", "give the login what this prints: cronce auth producer worker")
	case ctx.Err() == nil && !errors.Is(err, job.ErrDenied):
		l.log.Warn("cannot list the handlers of this node", "node", l.node, "error", err)
	}
}

// listHandlers keeps the list of the node's handlers until ctx ends.
func (r *Replica) listHandlers(ctx context.Context, n *node.Node) {
	list := handlerList{store: r.cfg.Store.HandlerLists(), node: n.Name(), names: r.cfg.Handlers, log: r.log}
	list.run(ctx, node.Interval(r.cfg.Store.Settings().Lease))
}
