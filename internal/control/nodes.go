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

// NodeSilent is what a node is that has not been heard of for a lease. It is
// nobody's record, only what an observer sees.
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

	former bool // only its end is known: see FormerNodes
}

// Place is where the node stands: the one that started first comes first.
func (n ListedNode) Place() Place { return placeOf(n.Started, n.Node) }

// MarshalJSON leaves out what is not known of a former node.
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

	// Now is the broker's time that silence was measured by.
	Now time.Time

	// Unreadable is why values were left out.
	Unreadable []error
}

// ListNodes lists the nodes after a place as of the broker's time now.
func (c *Control) ListNodes(ctx context.Context, place Place) (NodeList, error) {
	var list NodeList
	if err := place.checkTime(); err != nil {
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
		case unreadable(ev.Err):
			list.Unreadable = append(list.Unreadable, ev.Err)
		default:
			return list, ev.Err
		}
	}
	list.Nodes = after(list.Nodes, place)
	slices.SortFunc(list.Nodes, func(x, y ListedNode) int {
		return cmp.Or(x.Started.Compare(y.Started), strings.Compare(x.Node, y.Node))
	})
	return list, nil
}

// FormerNodes lists those that were declared dead and are not among the listed, since a node
// is remembered for an hour only; no longer ago than the ledger's retention. Of them only the events know, which tell when, and by whom. The one that
// was declared dead first comes first.
func (c *Control) FormerNodes(ctx context.Context, listed NodeList) ([]ListedNode, error) {
	known := map[string]bool{}
	for _, n := range listed.Nodes {
		known[n.Node] = true
	}
	var former []ListedNode
	for e, err := range c.cfg.Fleet.Events(ctx, kv.EventFilter{Job: core.NoJob}) {
		c.cfg.Alive()
		if err != nil && !unreadable(err) {
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
