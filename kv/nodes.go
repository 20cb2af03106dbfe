package kv

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/exchange"
)

// Nodes keeps one record for each node. A process is a new node after each start, and after it
// has lost its lease. Its methods are safe for concurrent use.
type Nodes struct {
	s *space.Space
	b wire.Bucket
}

// Read returns the last write of the node's record from the stream's leader. Its errors are
// those of Ledger.Read. Without a record, only Revision is set.
func (n *Nodes) Read(ctx context.Context, name string) (exchange.NodeEvent, error) {
	e, err := n.b.Read(ctx, name)
	if err != nil {
		return exchange.NodeEvent{Revision: e.Revision}, err
	}
	ev := n.event(e)
	return ev, ev.Err
}

// Write stores the node's record if revision is the last one of its key. A node writes its own
// record as a heartbeat, and that of another node to declare it dead. Its errors are those of
// Ledger.Write, and job.ErrDenied: a node logs that its login may not write, and tries the next
// heartbeat anyway.
func (n *Nodes) Write(ctx context.Context, node exchange.Node, revision uint64) (uint64, error) {
	return n.b.WriteValue(ctx, node.Name, node.Nonce, node, revision)
}

// List returns every node whose record is still stored, longest silent first. If a
// record cannot be read, its event has Err set.
func (n *Nodes) List(ctx context.Context) ([]exchange.NodeEvent, error) {
	var nodes []exchange.NodeEvent
	for e, err := range n.b.All(ctx, n.b.Stream, "", time.Time{}) {
		if err != nil {
			return nil, err
		}
		if !e.Gone() {
			nodes = append(nodes, n.event(e))
		}
	}
	return nodes, nil
}

// Watch calls f for every stored node, then once with Ready, then for every change. It makes one
// call at a time, in the broker's order. It returns nil when ctx ends, and wire.ErrGone when it
// finds the bucket removed. If the bucket was created again or restored meanwhile, Watch continues
// with the new revisions. Of several writes that follow each other quickly, or while the
// connection is down, it may report only the last. It reports a record that was removed, or that
// the broker dropped because of its age, as Gone.
func (n *Nodes) Watch(ctx context.Context, f func(exchange.NodeEvent)) error {
	decode := func(e wire.Entry) any { return n.event(e) }
	return n.s.Watch(ctx, n.b, false, decode, func(c wire.Change) {
		switch c.Kind {
		case wire.Settled: // node watchers need no settled revision
		case wire.Ready:
			f(exchange.NodeEvent{Ready: true, Revision: c.Revision})
		case wire.Removed:
			f(exchange.NodeEvent{Name: c.Key, Revision: c.Revision, Time: c.Time, Gone: true})
		default:
			f(c.Value.(exchange.NodeEvent))
		}
	})
}

func (n *Nodes) event(e wire.Entry) exchange.NodeEvent {
	ev := exchange.NodeEvent{Name: n.b.Key(e.Subject), Revision: e.Revision, Time: e.Time}
	node, err := exchange.DecodeNode(e.Data)
	ev.Node, ev.Err = checkKey(n.b, e, node, err, node.Name, "node record: it names", node.Name)
	return ev
}
