package memstore

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// HandlerLists is a kv.HandlerLists in memory, with the same methods.
type HandlerLists struct{ *Bucket }

// HandlerLists shares a bucket with Locks.
func (s *Store) HandlerLists() *HandlerLists { return &HandlerLists{s.state} }

func (h *HandlerLists) Read(ctx context.Context, node string) (exchange.Handlers, uint64, error) {
	e, err := h.read(ctx, "handlers."+node)
	if err != nil {
		return exchange.Handlers{}, e.revision, err
	}
	list, err := exchange.DecodeHandlers(e.data)
	return list, e.revision, err
}

func (h *HandlerLists) Write(ctx context.Context, list exchange.Handlers, revision uint64) (uint64, error) {
	return h.put(ctx, "handlers."+list.Node, list.Nonce, list, revision)
}

func (h *HandlerLists) Latest(ctx context.Context, nodes []string) (map[string]exchange.Handlers, error) {
	lists := map[string]exchange.Handlers{}
	for _, node := range nodes {
		list, _, err := h.Read(ctx, node)
		switch {
		case errors.Is(err, job.ErrNotFound):
		case exchange.IsUnreadable(err):
			lists[node] = exchange.Handlers{More: 1}
		case err != nil:
			return nil, err
		default:
			lists[node] = list
		}
	}
	return lists, nil
}
