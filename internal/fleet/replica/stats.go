package replica

import (
	"context"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/producer"
)

// Stats is the state of a replica at one moment. cronce.Stats has the same fields, and describes
// them.
type Stats struct {
	Version, Tzdata         string
	Connected               bool
	Reconnects              uint64
	Node                    string
	Trust                   time.Duration
	HeartbeatError          error
	Registry, Clock         bool
	ClockOffset, ClockError time.Duration
	Produces                bool
	Producer                producer.Stats
	Now, Watermark          time.Time
	Queues                  map[string]backlog
	Withheld                map[string]bool
	Owed, Stuck             int
}

// backlog is cronce.Backlog: a stream.Backlog is assignable to it.
type backlog = struct {
	Waiting, Taken uint64
	Oldest         time.Time
}

// current is what Stats reports: what runs now, and what sample has read last.
type current struct {
	mu       sync.Mutex
	node     *node.Node
	producer *producer.Producer
	ended    producer.Stats // counted by earlier producers

	watermark time.Time
	queues    map[string]backlog
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
	s.Registry, s.Clock = core.IsClosed(r.view.Ready()), core.IsClosed(r.clock.Known())
	s.Now, s.ClockOffset, s.ClockError = r.clock.Now(), r.clock.Offset(), r.clock.Error()
	s.Owed, s.Stuck = r.table.Size(), r.table.CountStuck()
	s.Withheld = map[string]bool{}
	for _, queue := range r.queues.get() {
		s.Withheld[queue] = r.cfg.Ready != nil && !core.IsClosed(r.cfg.Ready(queue))
	}
	return s
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
	queues := map[string]backlog{}
	for _, queue := range r.queues.get() {
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
