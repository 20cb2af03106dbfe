package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Ledger is where slots are written down. kv.Ledger satisfies it.
type Ledger interface {
	// Read returns the record as the leader has it; job.ErrNotFound, with the
	// revision to write over, when there is none.
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)

	// Write stores the record if revision is still the key's last one, 0 for
	// none, and returns its own. It repeats itself until it is answered or ctx
	// ends: job.ErrConflict is a definite no, job.ErrUnknown is not.
	Write(ctx context.Context, r job.Record, revision uint64) (uint64, error)

	// Send is Write for those who do not wait: answered is told what Write returns,
	// once and by any goroutine, the caller's included. It must not block.
	Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error))

	// Beside returns the records of others, of those that have one, from who has
	// seen own's at revision.
	Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error)
}

// Registry knows the jobs' definitions.
type Registry interface {
	// Lookup returns the definition as of registry revision atLeast or later.
	// job.ErrNotFound means that the job is deleted, as its leader says; any
	// other error, that it cannot be said now.
	Lookup(ctx context.Context, name string, atLeast uint64) (core.Entry, error)

	// Known is what Lookup would return of what is known here, without asking
	// anybody; nil if that is too little. It is not written to.
	Known(name string, atLeast uint64) *core.Entry

	// After returns the jobs that come after the named one, as far as is known
	// here, without asking anybody.
	After(name string) []core.Entry
}

// Node is the incarnation that the consumer works for.
type Node interface {
	Name() string

	// Context ends, with a cause, when the node may not act any more.
	Context() context.Context

	// Trusted reports whether it may act right now.
	Trusted() bool

	// Dead proves another node dead, or says when to ask again.
	Dead(ctx context.Context, name string) (dead bool, wait time.Duration, err error)
}

// Config of a Consumer. All fields are required but those with a default.
type Config struct {
	Namespace, Queue string
	Node             Node
	Ledger           Ledger
	Locks            Locks
	Registry         Registry

	// Sources are those that the queue's messages come from; they share the
	// places.
	Sources []Open

	// Handler returns the handler of a job, nil when there is none here.
	Handler func(name string) job.Handler

	// Ready returns a channel that is closed, or will be, when the queue's slots
	// can be run. It is asked again each time: until then none are asked for, and
	// none that have come are started. Default: always.
	Ready func() <-chan struct{}

	// Publish sends the message of a slot that follows from another, and returns
	// when the broker has it. It may do so twice.
	Publish func(ctx context.Context, queue string, m core.Message, payload []byte) error

	// Alert keeps an alert to be delivered, under a message ID, and returns when the
	// broker has it. It may do so twice.
	Alert func(ctx context.Context, e job.Event, id string) error

	// Table holds what this process owes; shared by all its consumers.
	Table *Table

	// Emit tells an event. It must not block. Default: nobody is told.
	Emit func(job.Event)

	// Trace begins a step of a slot's way, StepClaim, StepRun or StepComplete, with
	// the record that is written or stands: the step goes on in the returned
	// context, and ended is told how it ended. Nil: nothing is traced.
	Trace func(ctx context.Context, step string, d core.Delivery, rec job.Record) (_ context.Context, ended func(error))

	// Observer measures. Default: nobody does.
	Observer Observer

	// Wake tells everybody that the turn of a slot has come that waited in its
	// job's lock; Listen is told of those of one job, until stop is called. Both
	// are hints: a parked slot looks by itself now and then. Neither may block.
	// Default: nobody is told.
	Wake   func(job.Slot)
	Listen func(name string, woken func(job.Slot)) (stop func())

	// Cancel asks a node to end a slot that it runs. It is a hint too. Default:
	// nobody is asked.
	Cancel func(ctx context.Context, node string, r core.CancelRequest)

	// Holds asks a node that lives whether it holds the claim of the slot's record at a
	// revision. An error says nothing. Default: no node answers.
	Holds func(ctx context.Context, node string, s job.Slot, claim uint64) (core.HoldsAnswer, error)

	// Now is the broker's clock as well as this node knows it, ClockError how far it may
	// be off. Default of the latter: not at all.
	Now        func() time.Time
	ClockError func() time.Duration

	// Plausible returns an error while Now cannot be believed: then no slot ends by its
	// age, and those that would wait. Default: it always can.
	Plausible func() error

	Lease, Horizon time.Duration

	// Concurrency is how many handlers of this queue run at once here. Default
	// 16.
	Concurrency int

	// Grace is how long handlers may go on after the consumer was told to stop.
	// Default 25 s; negative: not at all.
	Grace time.Duration

	// Life is the process's: the end of a handler that may outlive its node
	// (job.LeaseLostFinish) is recorded until it ends. Default: it never does.
	Life context.Context

	// Logger: default none.
	Logger *slog.Logger
}

const (
	// DefaultConcurrency and DefaultGrace are Config's.
	DefaultConcurrency = 16
	DefaultGrace       = 25 * time.Second

	// linger is how long a handler whose context has ended may take to return
	// before the consumer goes without it. It is left in the table: its slot
	// stays claimed until the node falls silent.
	linger = 5 * time.Second
)

// Consumer works on one queue for one incarnation.
type Consumer struct {
	cfg      Config
	limiter  *limiter
	inflight *inflight
	locks    *locks
	waitlist *waitlist

	// stopping is closed when no new slot may be started.
	stopping chan struct{}
	// ended is the parent of handler contexts: it ends with the node, or when
	// the grace period is over.
	ended context.Context
	end   context.CancelCauseFunc
	// finishing is the parent of those that do not end with the node. The table
	// ends what is left of them with the process.
	finishing context.Context
	finish    context.CancelCauseFunc

	pool  *pool
	slots sync.WaitGroup
}

// New returns a consumer; see Run.
func New(cfg Config) *Consumer {
	if cfg.Concurrency == 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Life == nil {
		cfg.Life = context.Background()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.ClockError == nil {
		cfg.ClockError = func() time.Duration { return 0 }
	}
	if cfg.Plausible == nil {
		cfg.Plausible = func() error { return nil }
	}
	if cfg.Emit == nil {
		cfg.Emit = func(job.Event) {}
	}
	if cfg.Ready == nil {
		always := make(chan struct{})
		close(always)
		cfg.Ready = func() <-chan struct{} { return always }
	}
	if cfg.Wake == nil {
		cfg.Wake = func(job.Slot) {}
	}
	if cfg.Listen == nil {
		cfg.Listen = func(string, func(job.Slot)) func() { return func() {} }
	}
	if cfg.Cancel == nil {
		cfg.Cancel = func(context.Context, string, core.CancelRequest) {}
	}
	if cfg.Holds == nil {
		cfg.Holds = func(context.Context, string, job.Slot, uint64) (core.HoldsAnswer, error) {
			return core.HoldsAnswer{}, job.ErrUnknown
		}
	}
	c := &Consumer{
		cfg: cfg, inflight: newInflight(cfg.Lease), stopping: make(chan struct{}),
		locks: newLocks(cfg.Locks), waitlist: newWaitlist(cfg.Listen), pool: newPool(4 * cfg.Concurrency),
	}
	c.limiter = cfg.Table.limiter(cfg.Queue, cfg.Concurrency)
	c.ended, c.end = context.WithCancelCause(cfg.Node.Context())
	c.finishing, c.finish = context.WithCancelCause(context.Background())
	return c
}

// Run takes slots until ctx ends, then stops in order: it asks for no more, gives
// back what comes, lets handlers use their grace, cancels them, waits for them;
// what they did not finish is recorded and given back for others. It returns nil
// after that; the cause at once when the node's context ends, since then nothing
// may be written any more; and job.ErrMismatch when the queue is set up otherwise.
// It owns its goroutines, except those of handlers that ignore their context.
func (c *Consumer) Run(ctx context.Context) error {
	defer c.end(job.ErrStopping)
	context.AfterFunc(c.ended, func() { c.limiter.close(c) })
	defer c.pool.close()
	node := c.cfg.Node.Context()
	var loops sync.WaitGroup
	working, stop := context.WithCancel(node)
	defer func() { stop(); loops.Wait() }()
	loops.Go(func() { c.inflight.mark(working, c.cfg.Node.Trusted) })

	asking, quiet := context.WithCancel(working)
	pulled := make(chan struct{})
	var failed error
	loops.Go(func() { defer close(pulled); failed = c.pull(asking) })
	select {
	case <-node.Done():
	case <-pulled:
	case <-ctx.Done():
	}
	close(c.stopping)
	c.limiter.close(c)
	quiet()
	<-pulled
	if left := c.cfg.Table.held(c.cfg.Node.Name()); len(left) > 0 && ctx.Err() != nil {
		c.cfg.Logger.Info("stopping; running slots have their grace", "grace", c.cfg.Grace, "slots", left)
	}
	c.drain(node)
	if err := context.Cause(node); err != nil && !errors.Is(err, job.ErrStopping) {
		return err
	}
	return failed
}

// drain waits for the slots in hand: as long as the grace lasts, and then until
// their handlers have seen that their context has ended.
func (c *Consumer) drain(node context.Context) {
	done := make(chan struct{})
	go func() { c.slots.Wait(); close(done) }()
	grace := time.NewTimer(max(c.cfg.Grace, 0))
	defer grace.Stop()
	lost := false
	select {
	case <-done:
		return
	case <-node.Done():
		lost = true // a handler that is to finish goes on: see Table.Finish
	case <-grace.C:
		c.end(job.ErrStopping)
		c.finish(job.ErrStopping)
	}
	ctx, enough := context.WithTimeout(context.Background(), linger)
	defer enough()
	if !c.cfg.Table.await(ctx, func(o obligation) bool { return o.node != c.cfg.Node.Name() || lost && o.outlives() }) {
		c.cfg.Logger.Error("handlers ignore that their context has ended; going without them",
			"node", c.cfg.Node.Name(), "slots", c.cfg.Table.held(c.cfg.Node.Name()))
	}
}
