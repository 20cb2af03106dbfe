package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/fleet/registry"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Config of a Replica. Conn and Store are required.
type Config struct {
	Conn  *nats.Conn
	Store *kv.Store

	// Jobs are brought into the registry at the start, in the name of Owner
	// ("file", "code").
	Jobs  []job.Job
	Owner string

	// Handler returns the handler of a job, nil when there is none. It may
	// change its answers while the replica runs. Handlers lists the jobs it has
	// some for.
	Handler  func(name string) job.Handler
	Handlers func() []string

	// Ready says when slots of a queue can be run, see consumer.Config. Nil:
	// always.
	Ready func(queue string) <-chan struct{}

	// Serve, if set, answers for each incarnation from its first heartbeat on, until
	// the returned function is called: see internal/api.
	Serve func(ctx context.Context, node string, status func() core.Node) (stop func(), err error)

	// Queues are worked on; none: this replica is no worker.
	Queues []string

	// Produce says that it publishes due slots.
	Produce bool

	// Concurrency per queue, and Grace: see consumer.Config.
	Concurrency int
	Grace       time.Duration

	// Priority is the workers' place in the line, 0 (first) to 9: see
	// kv.Slots.Source.
	Priority int

	// Host replaces the host part of the node's name. Empty: the host's name.
	Host string

	// Clock is what this replica goes by, which then asks the broker for nothing.
	// Nil: its estimate of the broker's.
	Clock *clock.Clock

	// ClockShift is added to every reading of the local wall clock.
	ClockShift time.Duration

	// MaxClockOffset is how far the local clock may be from the broker's before
	// this replica refuses to produce. Zero: DefaultMaxClockOffset.
	MaxClockOffset time.Duration

	// EndOnStuck has Run end, in order and with an error that wraps job.ErrStuck, when
	// a handler has not returned a Grace after its context ended.
	EndOnStuck bool

	// Renewed is told the boot time until which the node trusts itself.
	Renewed func(until time.Duration)

	// Loaded is called when the registry has been read for the first time: what
	// that took of memory is free again. Nil: nobody wants to know.
	Loaded func()

	// Observer measures. Nil: nobody does.
	Observer Observer

	// Tracer follows slots. Nil: nobody does.
	Tracer *tracing.Tracer

	Version string
	Logger  *slog.Logger
}

// DefaultMaxClockOffset is Config's.
const DefaultMaxClockOffset = time.Hour

// Disabled reports whether the environment, as CRONCE_DISABLED, says that this
// process is to wait and do nothing: for migrations and the like that load the
// same program. Any word but "0", "false", "no" and "off" means it: a switch that
// is there to stop something must not be missed for its spelling.
func Disabled(getenv func(string) string) bool {
	switch strings.ToLower(strings.TrimSpace(getenv("CRONCE_DISABLED"))) {
	case "", "0", "false", "no", "off":
		return false
	}
	return true
}

// Replica is one process of the fleet. It lives as one incarnation after the
// other: each has a node of its own, and ends when its lease is lost.
type Replica struct {
	cfg      Config
	log      *slog.Logger
	identity string // of the process, for what it writes beside slots
	writes   atomic.Int64
	observer Observer // never nil

	clock *clock.Clock
	peers *node.Peers
	view  *registry.View
	own   own
	seen  sweep.Seen // of the ledger, by all incarnations
	table *consumer.Table
	beats *beats

	current current

	// watches says that this replica watches the others' heartbeats.
	watches *onOff

	// zones compares the time zone data of the fleet.
	zones *zones

	// settingUp has one place, for the goroutine that sets the namespace up again.
	// registry is when the bucket of the registry was created that has our jobs.
	settingUp chan struct{}
	registry  time.Time

	mu   sync.Mutex
	jobs []job.Job // that were last to be applied
}

// New returns a replica; see Run.
func New(cfg Config) *Replica {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxClockOffset == 0 {
		cfg.MaxClockOffset = DefaultMaxClockOffset
	}
	r := &Replica{cfg: cfg, log: cfg.Logger, identity: nodeName(cfg.Host, time.Now()), table: consumer.NewTable()}
	if r.clock = cfg.Clock; r.clock == nil {
		r.clock = clock.New(cfg.ClockShift, cfg.MaxClockOffset, r.clockStepped)
	}
	r.beats = &beats{clock: r.clock}
	r.watches = newOnOff()
	r.zones = newZones(job.TzdataVersion(), r.log)
	r.settingUp, r.registry = make(chan struct{}, 1), cfg.Store.Registry()
	r.peers = node.NewPeers(node.PeersConfig{
		Store: cfg.Store.Nodes(), Lease: cfg.Store.Settings().Lease, Now: r.clock.Now, Logger: r.log,
		Fenced: func(dead, by string) {
			r.emit(job.Event{Kind: job.EventFenced, Node: by, Peer: dead})
		},
	})
	r.view = registry.NewView(cfg.Store.Jobs(), func(name string) bool { return cfg.Handler != nil && cfg.Handler(name) != nil })
	r.observer = cfg.Observer
	if r.observer == nil {
		r.observer = nobody{}
	}
	r.observer.Follow(r.Stats)
	return r
}

// Run works until ctx ends, and then stops in order (see consumer.Run), or until
// the connection is closed for good, which is an error, or a handler is stuck (see
// Config.EndOnStuck). Losing the broker, or the
// lease, is none: it goes on when the broker is back.
func (r *Replica) Run(ctx context.Context) error {
	// Watches and heartbeats go on while handlers use their grace.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ctx, stuck := context.WithCancelCause(ctx)
	defer stuck(nil)
	group, life := errgroup.WithContext(life)
	if !r.cfg.Produce { // else the producer's watch tells the view too
		group.Go(func() error { return r.watchRegistry(life) })
	}
	group.Go(func() error { return r.lasting(life, r.watchNodes) })
	group.Go(func() error { r.watchSettings(life); return nil })
	if r.cfg.Loaded != nil {
		ready := r.view.Ready()
		group.Go(func() error {
			select {
			case <-ready:
				r.cfg.Loaded()
			case <-life.Done():
			}
			return nil
		})
	}
	if most := r.cfg.Store.MaxPayload(); most > 0 && most < kv.EnoughPayload {
		r.log.Warn("the server's max_payload is low: larger payloads are refused, outputs and errors are cut", "max_payload", most, "enough", kv.EnoughPayload)
	}
	group.Go(func() error { r.watchStuck(life, stuck); return nil })
	if r.cfg.Observer != nil {
		group.Go(func() error { r.sample(life); return nil })
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
	if err != nil && isClosed(r.cfg.Store.Closed()) {
		return errClosed // whatever noticed it first
	}
	return err
}

// farewell is how long, after its grace, a replica that is to end waits for what it still
// has to say and to take back. The connection may be one whose socket does not drain, for
// which the client waits up to a minute: then what is left ends by itself.
const farewell = 10 * time.Second

// wait waits for the group: after ctx has ended no longer than the grace and the farewell.
func (r *Replica) wait(ctx context.Context, group *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() {
		err := group.Wait()
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
		defer cancel()
		_ = r.cfg.Store.Flush(flush) // the connection may be closed next
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(cmp.Or(r.cfg.Grace, consumer.DefaultGrace) + farewell)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		r.log.Warn("ended before all was taken back: the connection takes nothing", "after", cmp.Or(r.cfg.Grace, consumer.DefaultGrace)+farewell)
		return nil
	}
}

var errClosed = errors.New("the connection to NATS was closed for good")

// work applies the jobs and then lives one incarnation after the other.
func (r *Replica) work(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	// The grace counts once, from when the replica is told to end.
	over, end := context.WithCancel(context.Background())
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cmp.Or(r.cfg.Grace, consumer.DefaultGrace), end) })()
	defer func() { cancel(); r.table.Finish(over) }()
	err := r.Apply(ctx, r.cfg.Jobs, false)
	if err != nil && ctx.Err() != nil {
		return nil // told to end before it began
	}
	for ctx.Err() == nil {
		if err == nil {
			if r.reachable(ctx) != nil {
				return nil // ctx ended while the broker was away
			}
			err = r.incarnation(ctx, life)
		}
		switch {
		case errors.Is(err, job.ErrLeaseLost):
			r.observer.LeaseLost()
			r.log.Warn("starting over under a new name", "reason", err)
			r.setUpAgain(ctx) // heartbeats have no answer either where there is no bucket for them
			err = nil
		case isGone(err):
			r.log.Error("starting over: what is on the broker is gone, or was made anew", "reason", err)
			if r.setUpAgain(ctx) {
				err = r.bringAgain(ctx)
			}
		default:
			return err
		}
	}
	return nil
}

// reachable waits until there is a broker to talk to.
func (r *Replica) reachable(ctx context.Context) error {
	for !r.cfg.Store.Connected() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func (r *Replica) clockStepped(s clock.Step) {
	if s.Local {
		r.log.Warn("this machine's clock was set; slots go by the broker's, and are not moved", "by", s.By)
		return
	}
	r.log.Warn("the broker's clock was set, or another broker answers; slots follow it", "by", s.By)
}

func (r *Replica) nonce() string {
	return fmt.Sprintf("%s#%d", r.identity, r.writes.Add(1))
}

// emit tells an event, as far as the broker is there to hear it.
func (r *Replica) emit(e job.Event) {
	r.observer.Event(e)
	e.V = codec.Version
	if e.Time.IsZero() {
		e.Time = r.clock.Now().UTC()
	}
	if err := r.cfg.Store.EmitEvent(e); err != nil {
		r.log.Debug("event not told", "kind", e.Kind, "slot", e.ID, "error", err)
	}
}
