package replica

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/fleet/registry"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Config of a Replica. Store and Handlers are required.
type Config struct {
	Store *kv.Store

	// Jobs are applied to the registry at the start, in the name of Owner ("file" or
	// "code").
	Jobs  []job.Job
	Owner string

	// Handler returns the handler of a job, or nil. Its answers may change while the replica
	// runs. Handlers returns the names of the jobs with a handler.
	Handler  func(name string) job.Handler
	Handlers func() []string

	// Ready reports when slots of a queue can run, see consumer.Config. Nil means always.
	Ready func(queue string) <-chan struct{}

	// Serve, if set, answers requests to each incarnation from its first heartbeat until
	// stop is called: see internal/api.
	Serve func(ctx context.Context, node string, status func() exchange.Node, handlers func() []string) (stop func(), err error)

	// Queues are the queues that this replica works on at the start: see SetQueues. Without
	// queues it is not a worker.
	Queues []string

	// Produce makes the replica publish due slots.
	Produce bool

	// Concurrency and Grace are those of consumer.Config. QueueConcurrency has the concurrency
	// of single queues; all others have Concurrency.
	Concurrency      int
	QueueConcurrency map[string]int
	Grace            time.Duration

	// Priority is the priority of the workers, 0 (first) to 9: see stream.Slots.Source.
	Priority int

	// Host replaces the host part of the node name. It defaults to the name of the host.
	Host string

	// Clock replaces the estimate of the broker's clock, which then is not measured.
	Clock *clock.Clock

	// ClockShift is added to every reading of the local wall clock.
	ClockShift time.Duration

	// MaxClockOffset is the largest difference between the local clock and the broker's at
	// which this replica produces. Zero means DefaultMaxClockOffset.
	MaxClockOffset time.Duration

	// EndOnStuck makes Run stop, with an error that wraps job.ErrStuck, when a handler has not
	// returned within Grace after its context ended. Other handlers still get their grace period.
	EndOnStuck bool

	// Renewed is called with the boot time until which the node trusts itself.
	Renewed func(until time.Duration)

	// Loaded, if set, is called when the registry has been read for the first time. The memory
	// that the reading took can then be freed.
	Loaded func()

	// Observer receives measurements. It may be nil.
	Observer Observer

	// Failed is called for each failed attempt: see consumer.Config. It may be nil.
	Failed func(job.Failure)

	// Tracer makes the spans of slots. It may be nil.
	Tracer *tracing.Tracer

	Version string
	Logger  *slog.Logger
}

// DefaultMaxClockOffset is the default of Config.MaxClockOffset.
const DefaultMaxClockOffset = time.Hour

// Replica is one process of the fleet. It runs one incarnation after another. Each has a
// node of its own, and ends when its lease is lost.
type Replica struct {
	cfg      Config
	log      *slog.Logger
	identity string // names the process in the job definitions that it writes
	writes   atomic.Int64
	observer Observer // never nil

	clock *clock.Clock
	peers *node.Peers
	view  *registry.View
	own   *ownJobs
	seen  sweep.Seen // of the ledger, by all incarnations
	table *consumer.Table
	beats *beats
	zones *zones

	current current
	queues  *variable[[]string]
	stopped chan struct{} // closed when Run returns

	// watchesNodes is true while this replica should watch the heartbeats of the fleet.
	watchesNodes *variable[bool]

	// settingUp has an element while a goroutine sets the namespace up again. registryCreated is the
	// creation time of the registry bucket to which this process has applied its jobs.
	settingUp       chan struct{}
	registryCreated time.Time

	patience time.Duration // applyPatience; tests shorten it
}

// New returns a replica; see Run.
func New(cfg Config) *Replica {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.MaxClockOffset = cmp.Or(cfg.MaxClockOffset, DefaultMaxClockOffset)
	r := &Replica{
		cfg: cfg, log: cfg.Logger, identity: nodeName(cfg.Host, time.Now()), observer: cfg.Observer, clock: cfg.Clock,
		table: consumer.NewTable(), zones: newZones(tzdata.Version, cfg.Logger), own: newOwnJobs(cfg.Jobs),
		queues: newVariable(cfg.Queues, slices.Equal), watchesNodes: newVariable(false, func(a, b bool) bool { return a == b }),
		stopped: make(chan struct{}), settingUp: make(chan struct{}, 1), registryCreated: cfg.Store.RegistryCreated(),
		patience: applyPatience,
	}
	if r.observer == nil {
		r.observer = noObserver{}
	}
	if r.clock == nil {
		r.clock = clock.New(cfg.ClockShift, cfg.MaxClockOffset, r.clockStepped)
	}
	r.beats = newBeats(r.clock, r.watchesNodes.get, cfg.Store.Nodes().Read)
	r.peers = node.NewPeers(node.PeersConfig{
		Store: cfg.Store.Nodes(), Lease: cfg.Store.Settings().Lease, Now: r.clock.Now, Logger: r.log,
		Fenced: func(dead, by string) {
			r.emit(job.Event{Kind: job.EventFenced, Node: by, Peer: dead})
		},
	})
	r.view = registry.NewView(cfg.Store.Jobs(), func(name string) bool { return cfg.Handler != nil && cfg.Handler(name) != nil })
	return r
}

// Run works until ctx ends, and then stops in order (see consumer.Run). It returns an error if the
// connection is closed for good, a handler is stuck (see Config.EndOnStuck), or an error is
// permanent, such as job.ErrMismatch of a queue. If the broker is away or the lease is lost, it goes
// on when the broker is back.
func (r *Replica) Run(ctx context.Context) error {
	defer close(r.stopped)
	// Watches and heartbeats go on while handlers use their grace.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ctx, stuck := context.WithCancelCause(ctx)
	defer stuck(nil)
	group, life := errgroup.WithContext(life)
	background := func(run func(context.Context)) { group.Go(func() error { run(life); return nil }) }
	if !r.cfg.Produce { // the producer's watch feeds the view otherwise
		group.Go(func() error { return r.watchRegistry(life) })
	}
	group.Go(func() error { return r.keepWatching(life, r.watchNodes) })
	background(r.watchSettings)
	background(r.applyAdded)
	background(func(ctx context.Context) { r.watchStuck(ctx, stuck) })
	if r.cfg.Observer != nil {
		background(r.sample)
	}
	if r.cfg.Loaded != nil {
		r.goWhenReady(life, group, func(context.Context) error { r.cfg.Loaded(); return nil })
	}
	if most := r.cfg.Store.MaxPayload(); most > 0 && most < layout.EnoughPayload {
		r.log.Warn("max_payload is low: the server refuses larger payloads, outputs and errors are cut", "max_payload", most, "enough", layout.EnoughPayload)
	}
	group.Go(func() error {
		defer end()
		return r.work(ctx, life)
	})
	group.Go(func() error {
		select {
		case <-r.cfg.Store.Closed():
			return errClosed
		case <-life.Done():
			return nil
		}
	})
	err := r.wait(ctx, group)
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, job.ErrStuck) {
		return cause
	}
	if err != nil && core.IsClosed(r.cfg.Store.Closed()) {
		return errClosed // other goroutines may have failed first, because of it
	}
	return err
}

// goWhenReady adds run to the group. It starts when the view has been read, unless ctx ends first.
func (r *Replica) goWhenReady(ctx context.Context, group *errgroup.Group, run func(context.Context) error) {
	ready := r.view.Ready()
	group.Go(func() error {
		select {
		case <-ready:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
}

// flushTime is how long Run waits, after the grace period, for its goroutines to send their last
// writes. If the socket of the connection is blocked, the NATS client would wait for up to a minute.
// Goroutines that still run after that end by themselves.
const flushTime = 10 * time.Second

// wait waits for the group, but after the end of ctx for at most the grace period plus flushTime.
func (r *Replica) wait(ctx context.Context, group *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() {
		err := group.Wait()
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		_ = r.cfg.Store.Flush(flush) // the connection may be closed next
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit := r.grace() + flushTime
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		r.log.Warn("stopped before all writes were sent: the connection is blocked", "after", limit)
		return nil
	}
}

func (r *Replica) grace() time.Duration { return cmp.Or(r.cfg.Grace, consumer.DefaultGrace) }

var errClosed = fmt.Errorf("%w for good", nats.ErrConnectionClosed)

// work applies the jobs and then runs one incarnation after another.
func (r *Replica) work(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	// All incarnations share one grace period, which begins when ctx ends.
	over, end := context.WithCancel(context.Background())
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.grace(), end) })()
	defer func() { cancel(); r.table.Finish(over) }()
	err := r.applyOwn(ctx)
	if err != nil && ctx.Err() != nil {
		return nil // ctx ended before the start
	}
	for ctx.Err() == nil {
		if err == nil {
			for !r.cfg.Store.Connected() {
				if !wire.Wait(ctx, 100*time.Millisecond) {
					return nil
				}
			}
			err = r.incarnation(ctx, life)
		}
		switch {
		case errors.Is(err, job.ErrLeaseLost):
			r.observer.LeaseLost()
			r.log.Warn("starting again under a new name", "error", err)
			r.setUpAgain(ctx) // the lease is also lost if the bucket of the heartbeats no longer exists
			err = nil
		case isGone(err):
			r.log.Error("starting again: the namespace is gone or was created again", "error", err)
			if r.setUpAgain(ctx) {
				err = r.applyOwn(ctx)
			}
		default:
			return err
		}
	}
	return nil
}

func (r *Replica) clockStepped(s clock.Step) {
	if s.Local {
		r.log.Warn("this machine's clock was set: slots follow the broker's clock and do not move", "by", s.By)
		return
	}
	r.log.Warn("the broker's clock was set, or another broker answers: slots follow it", "by", s.By)
}

func (r *Replica) nonce() string {
	return fmt.Sprintf("%s#%d", r.identity, r.writes.Add(1))
}

// emit publishes an event if the broker is connected. An event may be lost.
func (r *Replica) emit(e job.Event) {
	e.V = codec.Version
	if e.Time.IsZero() {
		e.Time = r.clock.Now().UTC()
	}
	r.observer.Event(e)
	if err := r.cfg.Store.Emit(e); err != nil {
		r.log.Debug("event not published", "kind", e.Kind, "slot", e.ID, "error", err)
	}
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nodeName returns a name that no other incarnation of any process has:
// host-pid-start-random. The random part alone is unique; the rest is for readers.
func nodeName(host string, started time.Time) string {
	if host == "" {
		host, _ = os.Hostname()
		host, _, _ = strings.Cut(host, ".")
	}
	host = strings.Trim(notInNames.ReplaceAllString(host, "-"), "-")
	host = cmp.Or(host, "node")
	host = host[:min(len(host), 40)]
	return fmt.Sprintf("%s-%d-%d-%s", host, os.Getpid(), started.Unix(), strings.ToLower(rand.Text()[:8]))
}
