package replica

import (
	"context"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/producer"
)

// Stats is what a replica knows of itself at one moment.
type Stats struct {
	// Version is the program's, Tzdata that of its time zone data.
	Version, Tzdata string

	// Connected says that there is a broker, Reconnects how often it was lost and
	// found again.
	Connected  bool
	Reconnects uint64

	// Node is the current incarnation's name, empty while there is none. Trust is
	// for how long it trusts itself if no further heartbeat is acknowledged: zero
	// before the first, less when the lease is lost.
	Node  string
	Trust time.Duration

	// Registry says that all jobs were seen once, Clock that the broker's clock is
	// known: it is ahead of this machine's by ClockOffset, give or take
	// ClockError.
	Registry, Clock         bool
	ClockOffset, ClockError time.Duration

	// Produces says that a producer runs; Producer counts for all incarnations.
	Produces bool
	Producer producer.Stats

	// Now is the broker's clock. Watermark is the stored one, zero while it is not
	// known, as it was some seconds ago.
	Now, Watermark time.Time

	// Queues has those whose backlog the broker told in the last seconds.
	Queues map[string]kv.Backlog

	// Withheld has the queues worked on here, and whether their slots are left to
	// others since a service is not ready.
	Withheld map[string]bool

	// Owed is how many slots the process owes something; Stuck, how many of its
	// handlers were told to end and do not return.
	Owed, Stuck int
}

// current is what runs now, for Stats.
type current struct {
	mu       sync.Mutex
	node     *node.Node
	producer *producer.Producer
	ended    producer.Stats // what the producers before it counted

	watermark time.Time
	queues    map[string]kv.Backlog
}

func (c *current) lives(n *node.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = n
}

func (c *current) produces(p *producer.Producer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.producer != nil {
		c.ended = c.ended.Plus(c.producer.Stats())
	}
	c.producer = p
}

// Stats may be called at any time, from any goroutine. It does not wait for the
// broker.
func (r *Replica) Stats() Stats {
	c := &r.current
	c.mu.Lock()
	n, p := c.node, c.producer
	s := Stats{Watermark: c.watermark, Queues: c.queues, Producer: c.ended, Produces: p != nil}
	c.mu.Unlock()
	if n != nil {
		s.Node, s.Trust = n.Name(), n.Left()
	}
	if p != nil {
		s.Producer = p.Stats().Plus(s.Producer)
	}
	s.Version, s.Tzdata = r.cfg.Version, job.TzdataVersion()
	s.Connected, s.Reconnects = r.cfg.Store.Connected(), r.cfg.Store.Reconnects()
	s.Registry, s.Clock = isClosed(r.view.Ready()), isClosed(r.clock.Known())
	s.Now, s.ClockOffset, s.ClockError = r.clock.Now(), r.clock.Offset(), r.clock.Error()
	s.Owed, s.Stuck = r.table.Size(), r.table.CountStuck()
	s.Withheld = map[string]bool{}
	for _, queue := range r.cfg.Queues {
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
	// sampleEvery is how often the broker is asked what only it knows.
	sampleEvery = 5 * time.Second

	// samplePatience bounds what is asked at a time.
	samplePatience = 3 * time.Second
)

// sample asks the broker what it knows of the watermark and of the queues, until ctx
// ends. What it does not answer is not known: of the watermark the last one stands,
// since it does not go back.
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
	queues := map[string]kv.Backlog{}
	for _, queue := range r.cfg.Queues {
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
