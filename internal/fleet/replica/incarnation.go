package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/link"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/alert"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/fleet/intake"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/producer"
)

// stopTime bounds the write by which a node records that it has stopped, and the flush at the end of
// Run.
const stopTime = 2 * time.Second

// incarnation runs a node until ctx ends (nil), the lease is lost (job.ErrLeaseLost) or a
// permanent error occurs. life outlives ctx by the time that handlers take to end. If life ends
// while the incarnation still runs, its lease is lost, because its heartbeats end.
func (r *Replica) incarnation(ctx, life context.Context) error {
	started, lease := r.clock.Now(), r.cfg.Store.Settings().Lease
	name := nodeName(r.cfg.Host, started)
	n := node.New(node.Config{
		Store: r.cfg.Store.Nodes(), Record: r.record, Name: name, Started: started, Lease: lease,
		Renewed: r.cfg.Renewed, Acknowledged: r.beats.acknowledged, Failed: r.observer.HeartbeatFailed, Logger: r.log,
		Pause: func() time.Duration { return pauseBeforeAnyBeat(r.clock, lease, name) },
	})
	defer context.AfterFunc(life, func() { n.Lose(fmt.Errorf("%w: this replica has ended", job.ErrLeaseLost)) })()
	r.current.setNode(n)
	defer r.current.setNode(nil)
	r.beats.switchTo(name)
	beating, stop := context.WithCancel(life)
	var ended sync.WaitGroup
	ended.Go(func() { _ = n.Run(beating) }) // n.Context has the cause
	ended.Go(func() { r.beats.readStamps(beating, name) })
	var err error
	if r.waitToAct(ctx, n) {
		r.log.Info("node is up", "node", name)
		stopServing := r.serve(ctx, n)
		err = r.roles(ctx, life, n)
		link.Aside(stopServing)
	}
	stop()
	ended.Wait()
	if lost := context.Cause(n.Context()); lost != nil {
		return lost
	}
	r.stop(life, n)
	return err
}

// serve answers requests to this incarnation until stop is called. The fleet works without
// it.
func (r *Replica) serve(ctx context.Context, n *node.Node) (stop func()) {
	if r.cfg.Serve == nil {
		return func() {}
	}
	stop, err := r.cfg.Serve(ctx, n.Name(), r.record, r.cfg.Handlers)
	if err != nil {
		r.log.Warn("cannot answer requests to this node", "error", err)
		return func() {}
	}
	return stop
}

// waitToAct waits until the node may act: its first heartbeat is acknowledged and the broker's
// clock is known. By a local clock that is a day fast every slot would be too old, and by a
// clock that is a day slow none would be due. It returns false if ctx or the node ends first.
func (r *Replica) waitToAct(ctx context.Context, n *node.Node) bool {
	for _, event := range []<-chan struct{}{n.Ready(), r.clock.Known()} {
		select {
		case <-event:
		case <-n.Context().Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// roles runs the producer and the consumers until ctx or the node ends.
func (r *Replica) roles(ctx, life context.Context, n *node.Node) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(n.Context(), stop)()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.listHandlers(ctx, n); return nil })
	// Users of the view wait until it is ready. Before, it does not know which jobs run after
	// others, and would read the definition of each slot from the leader.
	if r.cfg.Produce {
		r.view.Restart() // it got no events since the watch of the last producer ended
		s := r.sweeper(n.Name())
		r.goWhenReady(ctx, group, func(ctx context.Context) error { s.Run(ctx); return nil })
		r.goWhenReady(ctx, group, func(ctx context.Context) error { r.intake(n.Name()).Run(ctx); return nil })
		group.Go(func() error { return r.produce(ctx, n, s.Published) })
		group.Go(func() error { r.peers.Guard(ctx, n.Name()); return nil })
	}
	r.goWhenReady(ctx, group, func(ctx context.Context) error { return r.workers(ctx, life, n) })
	return group.Wait()
}

// stop records that the node has stopped, unless a handler is still running: the record
// would free its slot.
func (r *Replica) stop(life context.Context, n *node.Node) {
	if left := r.table.Len(n.Name()); left > 0 {
		r.log.Warn("handlers still run: their slots stay claimed until the lease expires", "node", n.Name(), "slots", left)
		return
	}
	ctx, cancel := context.WithTimeout(life, stopTime)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		r.log.Warn("cannot record that the node has stopped: its slots are free when the lease expires", "node", n.Name(), "error", err)
		return
	}
	r.log.Info("node stopped", "node", n.Name())
}

// record returns what the node publishes about itself.
func (r *Replica) record() exchange.Node {
	queues := r.queues.get()
	return exchange.Node{
		Producer: r.cfg.Produce, Worker: len(queues) > 0, Queues: queues,
		Priority: r.cfg.Priority, Running: r.table.Running(), ClockOffset: r.clock.Offset(), ClockError: r.clock.Error(),
		Tzdata: tzdata.Version, Version: r.cfg.Version,
	}
}

func (r *Replica) sweeper(name string) *sweep.Sweeper {
	store, settings := r.cfg.Store, r.cfg.Store.Settings()
	return sweep.New(sweep.Config{
		Node: name, Ledger: store.Ledger(), Locks: store.Locks(), Lines: store.Lines(), Slots: store.Slots(), Timers: store.Timers(),
		Nodes: store.Nodes(), Registry: store.Jobs(), Ends: store.SweepEnds(), Seen: &r.seen, After: r.view.After,
		Late: r.view.Late, Alerts: store, AlertStates: store.AlertStates(),
		Now: r.clock.Now, Plausible: r.clock.Plausible, Lease: settings.Lease, Horizon: settings.Horizon, Logger: r.log,
		Offered: func(job.Slot) { r.observer.Offered() }, Rewound: r.emit,
	})
}

func (r *Replica) produce(ctx context.Context, n *node.Node, published func(string, core.Message)) error {
	ctx, stop := context.WithCancel(ctx)
	vouches := r.newVouches()
	var ended sync.WaitGroup
	ended.Go(func() { vouches.run(ctx) })
	ended.Go(func() { r.zones.readAll(ctx, r.cfg.Store.Nodes().List) })
	defer func() { stop(); ended.Wait() }()
	cfg := producer.Config{
		Node: n.Name(), Started: n.Started(), Registry: watchedRegistry{r}, Watermark: r.cfg.Store.Watermark(),
		Slots: r.cfg.Store.Slots(), Peers: r.cfg.Store.Announcements(), Vouched: vouches.get, ZonesBehind: r.zones.behind, Clock: r.clock, Stepped: r.clock.Stepped(), Reconnects: r.cfg.Store.Reconnects,
		Horizon: r.cfg.Store.Settings().Horizon, Logger: r.log, Stored: published, SetActive: r.watchesNodes.set, Nap: boot.Nap,
	}
	p, err := producer.New(cfg)
	if err != nil {
		return err
	}
	r.current.setProducer(p)
	defer r.current.setProducer(nil)
	return p.Run(ctx)
}

func (r *Replica) consumer(life context.Context, n *node.Node, queue string) *consumer.Consumer {
	settings := r.cfg.Store.Settings()
	var ready func() <-chan struct{}
	if r.cfg.Ready != nil {
		ready = func() <-chan struct{} { return r.cfg.Ready(queue) }
	}
	cfg := consumer.Config{
		Namespace: r.cfg.Store.Namespace, Queue: queue, Node: member{n, r.peers},
		Ledger: r.ledger(), Observer: r.cfg.Observer, Failed: r.cfg.Failed, Locks: r.cfg.Store.Locks(), Lines: r.cfg.Store.Lines(), Registry: r.view, Handler: r.cfg.Handler, Ready: ready, Table: r.table,
		Publish: r.put, Alert: r.alert, AlertStates: r.cfg.Store.AlertStates(), Sources: r.sources(queue),
		// If Cancel fails, a later request makes up for it.
		Cancel: func(ctx context.Context, node string, req core.CancelRequest) {
			_, _ = r.cfg.Store.AskCancel(ctx, node, req)
		},
		Holds: r.cfg.Store.AskHolds,
		Life:  life, Emit: r.emit, Now: r.clock.Now, ClockError: r.clock.Error, Plausible: r.clock.Plausible, Lease: settings.Lease, Horizon: settings.Horizon,
		Concurrency: cmp.Or(r.cfg.QueueConcurrency[queue], r.cfg.Concurrency), Grace: r.cfg.Grace, Logger: r.log,
	}
	if r.cfg.Tracer != nil {
		cfg.Trace = r.cfg.Tracer.Step
	}
	return consumer.New(cfg)
}

func (r *Replica) put(ctx context.Context, queue string, m core.Message, payload []byte) error {
	_, err := r.cfg.Store.Slots().Put(ctx, queue, m, payload)
	return err
}

// alert stores an alert about an outcome. A worker publishes up to three alerts in a row, for which it has
// a lease.
func (r *Replica) alert(ctx context.Context, e job.Event, id string, since time.Time) error {
	return kv.AlertOnce(ctx, r.cfg.Store, e, id, since, r.clock.Now(), r.cfg.Store.Settings().Lease/4)
}

func (r *Replica) intake(name string) *intake.Intake {
	store := r.cfg.Store
	return intake.New(intake.Config{
		Node: name, Jobs: r.view.Messaged, Slots: store.Slots(), Broker: store, Logger: r.log,
		Open:  func(ctx context.Context, c core.OnConsumer) (intake.Feed, error) { return store.OpenOn(ctx, c) },
		Names: func(job string) []string { return layout.OnConsumers(store.Namespace, job) },
		Read: func(ctx context.Context, name string) (plans.Entry, error) {
			e, _, err := store.Jobs().Read(ctx, name)
			return e, err
		},
		Now: r.clock.Now, Horizon: store.Settings().Horizon,
	})
}

func (r *Replica) alerts() *alert.Deliverer {
	return alert.New(alert.Config{
		Namespace: r.cfg.Store.Namespace, Registry: r.view, Request: r.cfg.Store.Request, Getenv: os.Getenv, Logger: r.log,
		Open: func(ctx context.Context) (alert.Feed, error) { return r.cfg.Store.Alerts(ctx) },
		Emit: r.emit, Now: r.clock.Now, MaxPayload: r.cfg.Store.MaxPayload,
		State: func(ctx context.Context, name string) (exchange.AlertState, error) {
			state, _, err := r.cfg.Store.AlertStates().Read(ctx, name)
			return state, err
		},
	})
}

// sources returns the sources of a queue: its two lanes, and its timers that have fired.
func (r *Replica) sources(queue string) []consumer.Open {
	open := func(source func(context.Context, string, int) (*stream.Source, error)) consumer.Open {
		return func(ctx context.Context) (consumer.Source, error) {
			s, err := source(ctx, queue, r.cfg.Priority)
			switch {
			case errors.Is(err, stream.ErrNoTimers):
				return nil, nil //nolint:nilnil // no source, and no failure: see consumer.Open
			case err != nil:
				return nil, fmt.Errorf("open queue %s: %w", queue, err)
			}
			return s, nil
		}
	}
	return []consumer.Open{open(r.cfg.Store.Slots().Source), open(r.cfg.Store.Slots().Bulk), open(r.cfg.Store.Timers().Source)}
}

// member is a node that can also prove its peers dead.
type member struct {
	*node.Node
	peers *node.Peers
}

func (m member) Dead(ctx context.Context, name string) (bool, time.Duration, error) {
	return m.peers.Dead(ctx, name, m.Name())
}
