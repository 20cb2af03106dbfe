package kv

import (
	"context"
	"strings"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// HandlerLists stores, in the state bucket, for which jobs each node has handlers. Its methods are safe
// for concurrent use. A sweep removes the lists of dead nodes.
type HandlerLists struct{ b wire.Bucket }

const handlersPrefix = "handlers."

func handlersKey(node string) string { return handlersPrefix + node }

// HandlerLists returns the store of the nodes' lists of handlers. If a login may not write them,
// writes fail with job.ErrDenied.
func (s *Store) HandlerLists() *HandlerLists { return &HandlerLists{s.bucketFailingDenied("state")} }

// Read returns the list of a node and its revision, as the stream's leader has them. Errors are
// those of Ledger.Read.
func (h *HandlerLists) Read(ctx context.Context, node string) (exchange.Handlers, uint64, error) {
	return read(ctx, h.b, handlersKey(node), h.decode)
}

func (h *HandlerLists) decode(e wire.Entry) (exchange.Handlers, error) {
	list, err := exchange.DecodeHandlers(e.Data)
	return checkKey(h.b, e, list, err, handlersKey(list.Node), "list of handlers: it names node", list.Node)
}

// Write stores the list if revision is the last one of its key; 0 creates it. If the list is too large
// for the server's limit of a message's size, it is cut. Errors are those of Ledger.Write, and
// job.ErrDenied.
func (h *HandlerLists) Write(ctx context.Context, list exchange.Handlers, revision uint64) (uint64, error) {
	for room := h.b.Room(); room > 0 && len(list.Jobs) > 0; list = list.Cut(len(list.Jobs) * 9 / 10) {
		if data, err := list.MarshalJSON(); err != nil || len(data) <= room {
			break
		}
	}
	return h.b.WriteValue(ctx, handlersKey(list.Node), list.Nonce, list, revision)
}

// Latest returns the lists of the named nodes, read from any replica. It leaves out a node without a
// list. If a list cannot be read, the node may have any handler: its list is empty, and its More is 1.
func (h *HandlerLists) Latest(ctx context.Context, nodes []string) (map[string]exchange.Handlers, error) {
	lists := make(map[string]exchange.Handlers, len(nodes))
	err := h.b.EachLatest(ctx, len(nodes), func(i int) string { return handlersKey(nodes[i]) }, func(found []wire.Entry) {
		for _, e := range found {
			if e.Gone() {
				continue
			}
			list, err := h.decode(e)
			if err != nil {
				list = exchange.Handlers{More: 1}
			}
			lists[strings.TrimPrefix(h.b.Key(e.Subject), handlersPrefix)] = list
		}
	})
	return lists, err
}
