package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Nodes keeps one record per process incarnation. Its methods are safe for
// concurrent use.
type Nodes struct{ s *Store }

func (n *Nodes) bucket() bucket { return n.s.bucket("nodes") }

// Read returns the node's record and its revision from the stream's leader. Its
// errors are those of Ledger.Read.
func (n *Nodes) Read(ctx context.Context, name string) (core.Node, uint64, error) {
	e, err := n.bucket().read(ctx, name)
	if err != nil {
		return core.Node{}, e.revision, err
	}
	ev := n.event(e)
	return ev.Node, e.revision, ev.Err
}

// Look is Read with the broker's timestamp of the record.
func (n *Nodes) Look(ctx context.Context, name string) (core.NodeEvent, error) {
	e, err := n.bucket().read(ctx, name)
	if err != nil {
		return core.NodeEvent{}, err
	}
	ev := n.event(e)
	return ev, ev.Err
}

// Write stores the node's record if revision is the last one of its key. It serves
// heartbeats and fences. Its errors are those of Ledger.Write.
func (n *Nodes) Write(ctx context.Context, node core.Node, revision uint64) (uint64, error) {
	b := n.bucket()
	// A node with a hundred thousand handlers does not list them all. The list only
	// serves display, and the heartbeat must fit the server's limit.
	for room := b.room(); room > 0 && len(node.Handlers) > 0; node.Handlers = node.Handlers[:len(node.Handlers)/2] {
		if data, err := node.MarshalJSON(); err != nil || len(data) <= room {
			break
		}
	}
	return b.encode(ctx, node.Name, node.Nonce, node, revision)
}

// List returns every node whose record is still stored, longest silent first. If a
// record cannot be read, its event has Err set.
func (n *Nodes) List(ctx context.Context) ([]core.NodeEvent, error) {
	var nodes []core.NodeEvent
	b := n.bucket()
	for e, err := range b.all(ctx, b.stream(), "", time.Time{}) {
		if err != nil {
			return nil, err
		}
		if !e.gone() {
			nodes = append(nodes, n.event(e))
		}
	}
	return nodes, nil
}

// Watch calls f for every stored node, then once with Ready, then for every change.
// Calls are sequential, in the broker's order, until ctx ends (nil) or the bucket is
// gone (ErrGone). If several writes follow quickly, or happen while the broker is
// away, Watch may report the last one only. It reports a collected record as Gone.
func (n *Nodes) Watch(ctx context.Context, f func(core.NodeEvent)) error {
	decode := func(e entry) any { return n.event(e) }
	return n.s.watch(ctx, n.bucket(), false, decode, func(c change) {
		switch c.kind {
		case settled: // node watchers need no settled revision
		case ready:
			f(core.NodeEvent{Ready: true, Revision: c.revision})
		case removed:
			f(core.NodeEvent{Name: c.key, Revision: c.revision, Time: c.time, Gone: true})
		default:
			f(c.value.(core.NodeEvent))
		}
	})
}

func (n *Nodes) event(e entry) core.NodeEvent {
	b := n.bucket()
	ev := core.NodeEvent{Name: b.key(e.subject), Revision: e.revision, Time: e.time}
	ev.Node, ev.Err = core.DecodeNode(e.data)
	if ev.Err == nil && ev.Node.Name != ev.Name {
		ev.Err = fmt.Errorf("%w node record: it names %q", job.ErrInvalid, ev.Node.Name)
	}
	if ev.Err != nil {
		ev.Node, ev.Err = core.Node{}, b.unreadable(e, ev.Err)
	}
	return ev
}
