package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
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

// Observer receives measurements: see cronce.Observer.
type Observer interface {
	consumer.Observer
	Event(job.Event)
	Ledger(request string, took time.Duration, failed error)
	HeartbeatFailed()
	LeaseLost()
	Offered()
}

// noObserver ignores everything.
type noObserver struct{}

func (noObserver) Started(string, time.Duration, bool) {}
func (noObserver) Returned(string, time.Duration)      {}
func (noObserver) Waits(string)                        {}
func (noObserver) Event(job.Event)                     {}
func (noObserver) Ledger(string, time.Duration, error) {}
func (noObserver) HeartbeatFailed()                    {}
func (noObserver) LeaseLost()                          {}
func (noObserver) Offered()                            {}

// ledger is the ledger of the consumers. It measures requests, and remembers the newest
// write of this process.
type ledger struct {
	consumer.Ledger
	r *Replica
}

func (l ledger) Read(ctx context.Context, s job.Slot) (job.Record, uint64, error) {
	began := time.Now()
	r, revision, err := l.Ledger.Read(ctx, s)
	l.r.observer.Ledger("read", time.Since(began), failure(err))
	return r, revision, err
}

func (l ledger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	began := time.Now()
	revision, err := l.Ledger.Write(ctx, r, revision)
	l.written(r.Slot, began, revision, err)
	return revision, err
}

func (l ledger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	began, slot := time.Now(), r.Slot
	if exchange.DropsResult(r, l.r.cfg.Store.Room()) {
		// Send must not block, and a log may.
		go l.r.log.Warn("result dropped: with it the record is larger than the server's max_payload", "slot", slot.ID(), "bytes", len(r.Result))
	}
	l.Ledger.Send(ctx, r, revision, func(revision uint64, err error) {
		l.written(slot, began, revision, err)
		answered(revision, err)
	})
}

func (l ledger) written(slot job.Slot, began time.Time, revision uint64, err error) {
	l.r.observer.Ledger("write", time.Since(began), failure(err))
	if err == nil {
		l.r.seen.Note(slot, revision, l.r.clock.Now())
	}
}

// failure returns err, or nil if err is an answer.
func failure(err error) error {
	if errors.Is(err, job.ErrConflict) || errors.Is(err, job.ErrNotFound) {
		return nil
	}
	return err
}

func (r *Replica) ledger() consumer.Ledger { return ledger{r.cfg.Store.Ledger(), r} }
