package job

import "time"

// NodeState is what a node's key says of it.
type NodeState string

const (
	NodeAlive   NodeState = "alive"
	NodeStopped NodeState = "stopped" // by its own word, at a clean end
	NodeFenced  NodeState = "fenced"  // declared dead by another; for good
)

// MaxPriority is the last place in the line for slots; 0 is the first.
const MaxPriority = 9

// Node is one incarnation of a process, as it stands in the nodes bucket under
// its name. Its owner writes it at its last revision, every tenth of the lease;
// anybody who has seen it stand still for a whole lease may write NodeFenced
// over it, at that same revision. Whoever's write is won decides: a node that
// was fenced can never write again.
type Node struct {
	Name  string
	State NodeState

	// Started is when the incarnation began, by its own clock; see Began.
	Started time.Time

	// Lease is how long the node's silence must last before it may be fenced.
	Lease time.Duration

	Producer, Worker bool
	Queues           []string

	// Handlers are the jobs it has handlers for.
	Handlers []string

	// Priority is its place in the line for slots: 0, the first, to MaxPriority.
	Priority int

	// Running is how many handlers it runs.
	Running int

	// ClockOffset is the broker's clock minus the node's, as it measured it;
	// ClockError bounds the error of that.
	ClockOffset, ClockError time.Duration

	Tzdata, Version string

	FencedBy string
	FencedAt time.Time

	Nonce string
	Extra Extra
}

type nodeWire struct {
	V           int       `json:"v"`
	Name        string    `json:"node"`
	State       NodeState `json:"state"`
	Started     time.Time `json:"started"`
	Lease       duration  `json:"lease"`
	Producer    bool      `json:"producer"`
	Worker      bool      `json:"worker"`
	Queues      []string  `json:"queues,omitempty"`
	Handlers    []string  `json:"handlers,omitempty"`
	Priority    int       `json:"priority,omitempty"`
	Running     int       `json:"running"`
	ClockOffset duration  `json:"clock_offset"`
	ClockError  duration  `json:"clock_error"`
	Tzdata      string    `json:"tzdata"`
	Version     string    `json:"version"`
	FencedBy    string    `json:"fenced_by,omitempty"`
	FencedAt    time.Time `json:"fenced_at,omitzero"`
	Nonce       string    `json:"nonce"`
}

// Began is when the incarnation began, by the broker's clock.
func (n Node) Began() time.Time { return n.Started.Add(n.ClockOffset) }

// MarshalJSON writes the nodes bucket's value.
func (n Node) MarshalJSON() ([]byte, error) {
	return encode(nodeWire{
		Version, n.Name, n.State, n.Started.UTC(), duration(n.Lease), n.Producer, n.Worker, n.Queues, n.Handlers,
		n.Priority, n.Running, duration(n.ClockOffset), duration(n.ClockError), n.Tzdata, n.Version,
		n.FencedBy, n.FencedAt.UTC(), n.Nonce,
	}, n.Extra)
}

// DecodeNode reads a value of the nodes bucket.
func DecodeNode(data []byte) (Node, error) {
	var w nodeWire
	extra, err := decode("node record", data, &w)
	if err == nil {
		err = w.bound()
	}
	if err != nil {
		return Node{}, err
	}
	return Node{
		Name: w.Name, State: w.State, Started: w.Started, Lease: time.Duration(w.Lease),
		Producer: w.Producer, Worker: w.Worker, Queues: w.Queues, Handlers: w.Handlers, Priority: w.Priority, Running: w.Running,
		ClockOffset: time.Duration(w.ClockOffset), ClockError: time.Duration(w.ClockError),
		Tzdata: w.Tzdata, Version: w.Version, FencedBy: w.FencedBy, FencedAt: w.FencedAt, Nonce: w.Nonce, Extra: extra,
	}, nil
}

func (w *nodeWire) bound() error {
	b := bounds{what: "node record"}
	word(&b, "state", w.State, NodeAlive, NodeStopped, NodeFenced)
	b.names("node", w.Name)
	b.times("started", &w.Started)
	b.span("lease", time.Duration(w.Lease), 0, MaxLease)
	b.length("queues", len(w.Queues), maxQueues)
	b.names("queue", w.Queues...)
	b.length("handlers", len(w.Handlers), maxHandlers)
	b.names("job", w.Handlers...)
	b.number("priority", w.Priority, 0, MaxPriority)
	b.number("running", w.Running, 0, maxSlots)
	b.span("clock_offset", time.Duration(w.ClockOffset), -maxSpan, maxSpan)
	b.span("clock_error", time.Duration(w.ClockError), 0, maxSpan)
	began := w.Started.Add(time.Duration(w.ClockOffset))
	b.times("started", &began)
	b.words("tzdata", w.Tzdata)
	b.words("version", w.Version)
	b.words("fenced_by", w.FencedBy)
	b.times("fenced_at", &w.FencedAt)
	b.words("nonce", w.Nonce)
	return b.err
}
