package exchange

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// NodeState is the state of a node in its record.
type NodeState string

const (
	NodeAlive   NodeState = "alive"
	NodeStopped NodeState = "stopped" // the node has stopped, and has written so itself
	NodeFenced  NodeState = "fenced"  // another node has declared it dead; this is final
)

// MaxPriority is the lowest priority of a worker; 0 is the highest.
const MaxPriority = 9

// Node is the record of one node, which is one incarnation of a process, under its name in the
// nodes bucket. The node writes it every tenth of the lease, at the revision of its last write. Any
// node that has seen the same revision for a whole lease may write NodeFenced at that revision.
// The broker accepts one of the two writes. A fenced node cannot write its record again.
type Node struct {
	Name  string
	State NodeState

	// Started is when the node started, by its estimate of the broker's clock. At the start of a
	// process there is no estimate yet, so its first incarnation uses its own clock. See Began.
	Started time.Time

	// Lease is how long the record must stay unchanged before the node may be fenced.
	Lease time.Duration

	Producer, Worker bool
	Queues           []string

	// Priority is from 0 to MaxPriority. Workers with a lower number take slots first.
	Priority int

	// Running is the number of handlers that run.
	Running int

	// ClockOffset is the broker's clock minus the node's, as the node estimates it.
	// ClockError bounds the error of the estimate.
	ClockOffset, ClockError time.Duration

	Tzdata, Version string

	FencedBy string
	FencedAt time.Time

	Nonce string
	Extra codec.Extra
}

type nodeWire struct {
	V           int            `json:"v"`
	Name        string         `json:"node"`
	State       NodeState      `json:"state"`
	Started     time.Time      `json:"started"`
	Lease       codec.Duration `json:"lease"`
	Producer    bool           `json:"producer"`
	Worker      bool           `json:"worker"`
	Queues      []string       `json:"queues,omitempty"`
	Priority    int            `json:"priority,omitempty"`
	Running     int            `json:"running"`
	ClockOffset codec.Duration `json:"clock_offset"`
	ClockError  codec.Duration `json:"clock_error"`
	Tzdata      string         `json:"tzdata"`
	Version     string         `json:"version"`
	FencedBy    string         `json:"fenced_by,omitempty"`
	FencedAt    time.Time      `json:"fenced_at,omitzero"`
	Nonce       string         `json:"nonce"`
}

// Began returns when the node started, by the broker's clock, if Started is by the node's own.
func (n Node) Began() time.Time { return n.Started.Add(n.ClockOffset) }

// MarshalJSON writes a value of the nodes bucket.
func (n Node) MarshalJSON() ([]byte, error) {
	return codec.Encode(nodeWire{
		codec.Version, n.Name, n.State, n.Started.UTC(), codec.Duration(n.Lease), n.Producer, n.Worker, n.Queues,
		n.Priority, n.Running, codec.Duration(n.ClockOffset), codec.Duration(n.ClockError), n.Tzdata, n.Version,
		n.FencedBy, n.FencedAt.UTC(), n.Nonce,
	}, n.Extra)
}

// DecodeNode reads a value of the nodes bucket.
func DecodeNode(data []byte) (Node, error) {
	var w nodeWire
	extra, err := codec.DecodeBounded("node record", data, &w, func(b *codec.Bounds) {
		codec.Word(b, "state", w.State, NodeAlive, NodeStopped, NodeFenced)
		b.Names("node", w.Name)
		b.Times("started", &w.Started)
		b.Span("lease", time.Duration(w.Lease), 0, job.MaxLease)
		b.Length("queues", len(w.Queues), codec.MaxQueues)
		b.Names("queue", w.Queues...)
		b.Number("priority", w.Priority, 0, MaxPriority)
		b.Number("running", w.Running, 0, codec.MaxSlots)
		b.Span("clock_offset", time.Duration(w.ClockOffset), -codec.MaxSpan, codec.MaxSpan)
		b.Span("clock_error", time.Duration(w.ClockError), 0, codec.MaxSpan)
		began := w.Started.Add(time.Duration(w.ClockOffset))
		b.Times("started", &began)
		b.Words("tzdata", w.Tzdata)
		b.Words("version", w.Version)
		b.Words("fenced_by", w.FencedBy)
		b.Times("fenced_at", &w.FencedAt)
		b.Words("nonce", w.Nonce)
	})
	if err != nil {
		return Node{}, err
	}
	return Node{
		Name: w.Name, State: w.State, Started: w.Started, Lease: time.Duration(w.Lease),
		Producer: w.Producer, Worker: w.Worker, Queues: w.Queues, Priority: w.Priority, Running: w.Running,
		ClockOffset: time.Duration(w.ClockOffset), ClockError: time.Duration(w.ClockError),
		Tzdata: w.Tzdata, Version: w.Version, FencedBy: w.FencedBy, FencedAt: w.FencedAt, Nonce: w.Nonce, Extra: extra,
	}, nil
}

// NodeEvent is one change of the nodes bucket, as a watch delivers it.
type NodeEvent struct {
	Name     string
	Revision uint64

	// Time is the broker's timestamp of the change.
	Time time.Time

	// Node is the record. It is not set if Gone, Ready or Err is.
	Node Node

	// Gone is true if the record was removed. Err is why the record cannot be read. Ready marks
	// the event that follows all records that were stored when the watch began.
	Gone  bool
	Err   error
	Ready bool
}

// Alive reports whether the node's last heartbeat is within its lease. A record that cannot be read
// is not alive.
func (e NodeEvent) Alive(now time.Time) bool {
	return e.Node.State == NodeAlive && now.Sub(e.Time) <= e.Node.Lease
}

// Dead reports whether the node counts as dead in a diagnosis: its record says that it is not alive,
// or it has been silent for two leases. lease is the namespace's; if the node's own lease is longer,
// that one counts. The zero event, of a node without a record, is dead. Dead is no proof: only a
// fence proves a node dead.
func (e NodeEvent) Dead(now time.Time, lease time.Duration) bool {
	silent := now.Sub(e.Time) > 2*max(lease, e.Node.Lease)
	return silent || e.Err == nil && e.Node.State != NodeAlive
}
