package control

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// NodeSilent is the state of a node that is stored as alive and has sent no heartbeat for its
// lease. It is not stored: listings compute it.
const NodeSilent core.NodeState = "silent"

// ListedNode is a row of the listing of nodes.
type ListedNode struct {
	Node        string         `json:"node"`
	State       core.NodeState `json:"state"`
	Started     time.Time      `json:"started,omitzero"`
	Heartbeat   time.Time      `json:"heartbeat,omitzero"`
	Lease       string         `json:"lease,omitempty"`
	Producer    bool           `json:"producer"`
	Worker      bool           `json:"worker"`
	Queues      []string       `json:"queues,omitempty"`
	Priority    int            `json:"priority,omitempty"`
	Running     int            `json:"running"`
	ClockOffset float64        `json:"clock_offset_ms"`
	Tzdata      string         `json:"tzdata,omitempty"`
	Version     string         `json:"version,omitempty"`
	FencedBy    string         `json:"fenced_by,omitempty"`
	FencedAt    time.Time      `json:"fenced_at,omitzero"`

	former bool // see FormerNodes
}

// Cursor returns the row's position: nodes are ordered by their start.
func (n ListedNode) Cursor() Cursor { return timeCursor(n.Started, n.Node) }

// MarshalJSON leaves out what is not known of a node of FormerNodes.
func (n ListedNode) MarshalJSON() ([]byte, error) {
	if n.former {
		return json.Marshal(struct {
			Node     string         `json:"node"`
			State    core.NodeState `json:"state"`
			FencedBy string         `json:"fenced_by"`
			FencedAt time.Time      `json:"fenced_at"`
		}{n.Node, n.State, n.FencedBy, n.FencedAt})
	}
	type plain ListedNode
	return json.Marshal(plain(n))
}

// NodeList is a listing of nodes.
type NodeList struct {
	Nodes []ListedNode

	// Now is the broker's time at which the states were computed.
	Now time.Time

	// Unreadable are the errors of values that were left out.
	Unreadable []error
}

// ListNodes lists the nodes after a cursor.
func (c *Control) ListNodes(ctx context.Context, cursor Cursor) (NodeList, error) {
	var list NodeList
	if err := cursor.checkTime(); err != nil {
		return list, err
	}
	events, err := c.cfg.Nodes.List(ctx)
	if err != nil {
		return list, err
	}
	c.cfg.Alive()
	if list.Now, err = c.cfg.Now(ctx); err != nil {
		return list, err
	}
	for _, ev := range events {
		switch {
		case ev.Err == nil:
			list.Nodes = append(list.Nodes, listedNode(ev.Node, ev.Time, list.Now))
		case core.IsUnreadable(ev.Err):
			list.Unreadable = append(list.Unreadable, ev.Err)
		default:
			return list, ev.Err
		}
	}
	list.Nodes = after(list.Nodes, cursor)
	slices.SortFunc(list.Nodes, func(x, y ListedNode) int {
		return cmp.Or(x.Started.Compare(y.Started), strings.Compare(x.Node, y.Node))
	})
	return list, nil
}

// FormerNodes lists nodes that were declared dead and are not in listed, ordered by when they
// were declared dead. A node is stored for an hour only. Events, which are kept for the
// ledger's retention, have its name, who declared it dead, and when.
func (c *Control) FormerNodes(ctx context.Context, listed NodeList) ([]ListedNode, error) {
	known := map[string]bool{}
	for _, n := range listed.Nodes {
		known[n.Node] = true
	}
	var former []ListedNode
	for e, err := range c.cfg.Fleet.Events(ctx, kv.EventFilter{Job: core.NoJob}) {
		c.cfg.Alive()
		if err != nil && !core.IsUnreadable(err) {
			return nil, err
		}
		if err == nil && e.Kind == job.EventFenced && e.Peer != "" && !known[e.Peer] {
			known[e.Peer] = true
			former = append(former, ListedNode{Node: e.Peer, State: core.NodeFenced, FencedBy: e.Node, FencedAt: e.Time.UTC(), former: true})
		}
	}
	return former, nil
}

func listedNode(n core.Node, heartbeat, now time.Time) ListedNode {
	state := n.State
	if state == core.NodeAlive && now.Sub(heartbeat) > n.Lease {
		state = NodeSilent
	}
	return ListedNode{
		Node: n.Name, State: state, Started: n.Started.UTC(), Heartbeat: heartbeat.UTC(), Lease: n.Lease.String(),
		Producer: n.Producer, Worker: n.Worker, Queues: n.Queues, Priority: n.Priority, Running: n.Running,
		ClockOffset: float64(n.ClockOffset.Microseconds()) / 1000, Tzdata: n.Tzdata, Version: n.Version,
		FencedBy: n.FencedBy, FencedAt: n.FencedAt,
	}
}

// Workers are the live nodes that run slots.
type Workers []worker

// worker is a node with its handlers as a set: there may be thousands.
type worker struct {
	core.Node
	handlers map[string]bool
}

// Workers returns the live workers at the broker's time now. It leaves out nodes that have
// been silent for their lease, although only a fence proves a node dead.
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

// Of returns the names of the nodes that would run the job: those with a handler for it that
// work on its queue.
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
