package replica

import (
	"context"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/producer"
)

// Stats is the state of a replica at one moment.
type Stats struct {
	// Version is the version of the program, and Tzdata that of its time zone data.
	Version, Tzdata string

	// Connected is true while there is a connection. Reconnects counts how often it was
	// restored.
	Connected  bool
	Reconnects uint64

	// Node is the name of the current incarnation, or "". Trust is for how long it trusts
	// itself if no further heartbeat is acknowledged. It is zero before the first heartbeat,
	// and negative when the lease is lost.
	Node  string
	Trust time.Duration

	// HeartbeatError is why the last heartbeat failed, or nil.
	HeartbeatError error

	// Registry is true once all jobs were read, and Clock once the broker's clock is known.
	// The broker's clock minus this machine's is ClockOffset, within ClockError.
	Registry, Clock         bool
	ClockOffset, ClockError time.Duration

	// Produces is true while a producer runs. Producer counts for all incarnations.
	Produces bool
	Producer producer.Stats

	// Now is the broker's clock. Watermark is the stored one as of some seconds ago, or zero
	// if it is not known.
	Now, Watermark time.Time

	// Queues has the queues whose backlog was read in the last seconds.
	Queues map[string]stream.Backlog

	// Withheld has the queues of this worker. A value is true while their slots are left to
	// other nodes because a service is not ready.
	Withheld map[string]bool

	// Owed counts the slots that this process has claimed and not settled. Stuck counts the
	// handlers that do not return although their context has ended.
	Owed, Stuck int
}

// current is what runs now, for Stats.
type current struct {
	mu       sync.Mutex
	node     *node.Node
	producer *producer.Producer
	ended    producer.Stats // counted by earlier producers

	watermark time.Time
	queues    map[string]stream.Backlog
}

func (c *current) setNode(n *node.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = n
}

func (c *current) setProducer(p *producer.Producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.producer != nil {
		c.ended = c.ended.Plus(c.producer.Stats())
	}
	c.producer = p
}

// Stats returns the state of the replica. It does not wait for the broker, and may be called
// from any goroutine.
func (r *Replica) Stats() Stats {
	c := &r.current
	c.mu.Lock()
	n, p := c.node, c.producer
	s := Stats{Watermark: c.watermark, Queues: c.queues, Producer: c.ended, Produces: p != nil}
	c.mu.Unlock()
	if n != nil {
		s.Node, s.Trust, s.HeartbeatError = n.Name(), n.Left(), n.Failed()
	}
	if p != nil {
		s.Producer = p.Stats().Plus(s.Producer)
	}
	s.Version, s.Tzdata = r.cfg.Version, tzdata.Version
	s.Connected, s.Reconnects = r.cfg.Store.Connected(), r.cfg.Store.Reconnects()
	s.Registry, s.Clock = isClosed(r.view.Ready()), isClosed(r.clock.Known())
	s.Now, s.ClockOffset, s.ClockError = r.clock.Now(), r.clock.Offset(), r.clock.Error()
	s.Owed, s.Stuck = r.table.Size(), r.table.CountStuck()
	s.Withheld = map[string]bool{}
	for _, queue := range r.queues.list() {
		s.Withheld[queue] = r.cfg.Ready != nil && !isClosed(r.cfg.Ready(queue))
	}
	return s
}

func isClosed(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}

const (
	// sampleEvery is the interval at which sample reads from the broker.
	sampleEvery = 5 * time.Second

	// samplePatience bounds one sample.
	samplePatience = 15 * time.Second
)

// sample reads the watermark and the backlog of the queues from the broker until ctx ends.
// If the broker does not answer, a backlog is unknown and the watermark keeps its last
// value, since it never goes back.
func (r *Replica) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		r.sampleOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Replica) sampleOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, samplePatience)
	defer cancel()
	queues := map[string]stream.Backlog{}
	for _, queue := range r.queues.list() {
		if b, err := r.cfg.Store.Slots().Backlog(ctx, queue, r.cfg.Produce); err == nil {
			queues[queue] = b
		}
	}
	mark, _, err := r.cfg.Store.Watermark().Read(ctx)
	r.current.mu.Lock()
	defer r.current.mu.Unlock()
	r.current.queues = queues
	if err == nil {
		r.current.watermark = mark.Time
	}
}
