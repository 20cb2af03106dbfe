package sweep_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const (
	lease = 20 * time.Second
	most  = 2 * time.Minute
)

// pair is a broker that answers at once, with two producers. The older one sweeps, and is killed.
type pair struct {
	killed  time.Time
	record  *job.Record
	written time.Time // the record
	waiting []stream.WaitingSlot

	mu      sync.Mutex
	offered time.Time // when the slot was first offered; zero: not yet
}

func (p *pair) List(context.Context) ([]exchange.NodeEvent, error) {
	const beat = lease / 10
	now := time.Now()
	last := func(t time.Time) time.Time { return t.Truncate(beat) }
	node := func(name string, stamp time.Time, age time.Duration) exchange.NodeEvent {
		return exchange.NodeEvent{Name: name, Time: stamp, Node: exchange.Node{Name: name, State: exchange.NodeAlive, Producer: true, Lease: lease, Started: p.killed.Add(-age)}}
	}
	alive := now
	if now.After(p.killed) {
		alive = p.killed
	}
	return []exchange.NodeEvent{node("younger", last(now), time.Hour), node("older", last(alive), 2*time.Hour)}, nil
}

func (p *pair) Read(context.Context, job.Slot) (job.Record, uint64, error) {
	if p.record == nil {
		return job.Record{}, 0, job.ErrNotFound
	}
	return *p.record, 7, nil
}

func (p *pair) Publish(_ context.Context, _ string, m core.Message, _ []byte) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Slot == lost && p.offered.IsZero() {
		p.offered = time.Now()
	}
	return false, nil
}

func (p *pair) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(yield func(stream.WaitingSlot, error) bool) {
		for _, w := range p.waiting {
			if !yield(w, nil) {
				return
			}
		}
	}
}

// The methods of these types have the names of methods of pair.
type (
	ledger   struct{ *pair }
	locks    struct{}
	timers   struct{}
	registry struct{}
)

func (l ledger) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.Change, error] {
	return func(yield func(kv.Change, error) bool) {
		if r := l.record; r != nil {
			yield(kv.Change{Slot: r.Slot, Revision: 7, Time: l.written, State: r.State, Node: r.Node, RetryAt: r.RetryAt}, nil)
		}
	}
}

func (locks) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.LockChange, error] {
	return func(func(kv.LockChange, error) bool) {}
}

func (timers) Waiting(context.Context, stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(func(stream.WaitingSlot, error) bool) {}
}

// noEnds refuses to store the end of a sweep.
type noEnds struct{}

func (noEnds) Read(context.Context) (kv.SweepEnd, error) { return kv.SweepEnd{}, job.ErrNotFound }

func (noEnds) Write(context.Context, exchange.SweepEnd, uint64) (uint64, error) {
	return 0, job.ErrDenied
}

func (registry) Read(context.Context, string) (plans.Entry, uint64, error) {
	return plans.Entry{}, 0, job.ErrNotFound
}

var lost = job.Slot{Job: "report", Token: "lost"}

// newSweeper returns a sweeper of a fleet without locks, timers and definitions. It calls offered when it
// has offered a slot.
func newSweeper(cfg sweep.Config, offered func()) *sweep.Sweeper {
	cfg.Locks, cfg.Lines, cfg.Timers, cfg.Registry, cfg.Seen = locks{}, memstore.New().Lines(), timers{}, registry{}, &sweep.Seen{}
	cfg.Now, cfg.Plausible, cfg.Lease, cfg.Horizon = time.Now, func() error { return nil }, lease, 24*time.Hour
	cfg.After, cfg.Late = func(string) []plans.Entry { return nil }, func() []plans.Entry { return nil }
	cfg.Offered, cfg.Rewound = func(job.Slot) { offered() }, func(job.Event) {}
	return sweep.New(cfg)
}

// run runs both sweepers until one of them has offered the slot.
func (p *pair) run(published *core.Message, younger time.Duration) {
	ctx, end := context.WithTimeout(context.Background(), time.Hour)
	defer end()
	var running sync.WaitGroup
	defer running.Wait()
	node := func(ctx context.Context, name string) {
		s := newSweeper(sweep.Config{Node: name, Ledger: ledger{p}, Slots: p, Nodes: p, Ends: noEnds{}}, end)
		if published != nil {
			s.Published("default", *published)
		}
		running.Go(func() { s.Run(ctx) })
	}
	older, kill := context.WithDeadline(ctx, p.killed)
	defer kill()
	node(older, "older")
	time.Sleep(younger)
	node(ctx, "younger")
	<-ctx.Done()
}

// The kill and the loss may happen at any time between two turns of each node.
func TestALostSlotIsFoundInTwoMinutesEvenIfTheSweepingNodeIsKilled(t *testing.T) {
	t.Parallel()
	ways := map[string]func(p *pair, moves time.Time) (published *core.Message){
		"its next attempt was due": func(p *pair, moves time.Time) *core.Message {
			p.record, p.written = &job.Record{Slot: lost, State: job.Retrying, RetryAt: moves}, moves.Add(-time.Second)
			return nil
		},
		"the killed node ran it": func(p *pair, moves time.Time) *core.Message {
			p.record, p.written = &job.Record{Slot: lost, State: job.Running, Node: "older"}, moves
			p.killed = moves.Add(time.Second)
			return nil
		},
		"it was published, and lost": func(_ *pair, moves time.Time) *core.Message {
			return &core.Message{Slot: lost, Due: moves}
		},
		"the server forgot its message": func(p *pair, moves time.Time) *core.Message {
			p.waiting = []stream.WaitingSlot{{Message: core.Message{Slot: lost}, Sequence: 3, Published: moves, Stranded: true}}
			return nil
		},
	}
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const step = 5 * time.Second
			var worst time.Duration
			for phase := time.Duration(0); phase < time.Minute; phase += step { // of the loss, in the older's turns
				for younger := time.Duration(0); younger < time.Minute; younger += step { // of the younger's turns
					for kill := -step; kill < most; kill += step {
						synctest.Test(t, func(t *testing.T) {
							moves := time.Now().Add(2*time.Minute + phase)
							p := &pair{killed: moves.Add(kill - time.Millisecond)}
							p.run(lose(p, moves), younger+time.Microsecond)
							took := p.offered.Sub(moves)
							if p.offered.IsZero() || took > most {
								t.Errorf("killed %v after the slot should have moved, which was %v after a turn; the other node's turn is %v later: offered after %v", kill, phase, younger, took)
							}
							worst = max(worst, took)
						})
						if t.Failed() {
							return
						}
					}
				}
			}
			t.Logf("at most %v", worst)
		})
	}
}
