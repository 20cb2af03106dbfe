package consumer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/consumer/internal/inflight"
	"github.com/cronce-io/cronce/consumer/internal/pool"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Ledger stores the records of slots. kv.Ledger satisfies it.
type Ledger interface {
	// Read returns the record and its revision from the leader. If there is no record, it
	// returns job.ErrNotFound with the revision at which Write can create one.
	Read(ctx context.Context, s job.Slot) (job.Record, uint64, error)

	// Write stores the record if revision is the last one of its key, and returns the new
	// revision. Revision 0 means that the key must not exist. Write repeats the request until
	// it is answered or ctx ends. job.ErrConflict means that another write came first, or has
	// replaced the record since. job.ErrUnknown means that the record may have been stored.
	Write(ctx context.Context, r job.Record, revision uint64) (uint64, error)

	// Send is Write without waiting. It calls answered once, with the results of Write, on any
	// goroutine, even the caller's. answered must not block.
	Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error))

	// Beside returns the records of the slots in others, and leaves out slots without a record.
	// All of them come from one server, which already has own's record at revision or a later
	// one.
	Beside(ctx context.Context, own job.Slot, revision uint64, others []job.Slot) ([]job.Record, error)
}

// AlertStates stores which jobs failed, or were late, and have not succeeded since.
// kv.AlertStates satisfies it.
type AlertStates interface {
	// Read returns the state and its revision from the leader. If there is none, it returns
	// job.ErrNotFound with the revision at which Write can create one.
	Read(ctx context.Context, name string) (exchange.AlertState, uint64, error)

	// Write stores the state if revision is the last one of its key. Its errors are those of
	// Ledger.Write.
	Write(ctx context.Context, s exchange.AlertState, revision uint64) (uint64, error)
}

// Registry knows the jobs' definitions.
type Registry interface {
	// Lookup returns the definition as of registry revision atLeast or later.
	// job.ErrNotFound means that the registry's leader has answered that the job is deleted.
	// After any other error it is not known whether the job exists.
	Lookup(ctx context.Context, name string, atLeast uint64) (plans.Entry, error)

	// Known is Lookup from local memory, without a request. It returns nil if the memory has
	// no definition that is new enough. The caller must not change the entry.
	Known(name string, atLeast uint64) *plans.Entry

	// After returns the jobs that are defined to run after the named one. It answers from
	// local memory, without a request.
	After(name string) []plans.Entry
}

// Node is the incarnation that the consumer works for. A process gets a new incarnation at each
// start, and after it has lost its lease.
type Node interface {
	Name() string

	// Context ends, with a cause, when the node may not act any more.
	Context() context.Context

	// Trusted reports whether it may act right now.
	Trusted() bool

	// Dead reports whether another node is proved dead. If it is not, wait is how long to wait
	// before the next call.
	Dead(ctx context.Context, name string) (dead bool, wait time.Duration, err error)
}

// Config configures a Consumer. A field is required unless its comment gives a default or says
// what nil means.
type Config struct {
	Namespace, Queue string
	Node             Node
	Ledger           Ledger
	Locks            Locks
	Lines            Lines
	Registry         Registry

	// Each of Sources opens one source of the queue's messages. All sources share the queue's
	// limiter.
	Sources []Open

	// Handler returns the handler of a job; nil if there is none here.
	Handler func(name string) job.Handler

	// Ready returns a channel that is closed while the queue's slots can run. The consumer calls
	// Ready before each request for messages and before each start. Until the channel is closed,
	// it asks for no slots, and starts none that have arrived. Default: slots can always run.
	Ready func() <-chan struct{}

	// Publish publishes the message of a slot that follows from the outcome of another slot, or that
	// was called from its job's line, and returns when the broker has stored it. The broker may store
	// it twice.
	Publish func(ctx context.Context, queue string, m core.Message, payload []byte) error

	// Alert stores an alert that is to be delivered, under a message ID, and returns when the
	// broker has stored it. Another worker may have stored it since the given time. The broker may
	// store it twice.
	Alert func(ctx context.Context, e job.Event, id string, since time.Time) error

	// AlertStates stores which jobs have failed. The worker reads it to decide whether to
	// publish that a job has recovered. Default: no alert is published when a job recovers.
	AlertStates AlertStates

	// Table holds the slots that this process works on. All consumers of the process share it.
	Table *Table

	// Emit publishes an event. It must not block. Default: it does nothing.
	Emit func(job.Event)

	// Trace is called at the beginning of StepClaim, StepRun and StepComplete. For a run, rec is
	// the claim; for the others, it is the record that is about to be written. The handler runs
	// in the context that is returned for StepRun. ended is called with the result of the step.
	// Nil: nothing is traced.
	Trace func(ctx context.Context, step string, d core.Delivery, rec job.Record) (_ context.Context, ended func(error))

	// Failed is called after the result of each failed attempt is stored. It must not block.
	// Nil: nothing is called.
	Failed func(job.Failure)

	// Observer measures the worker. Nil: nothing is measured.
	Observer Observer

	// Cancel asks a node to end a slot that it runs. The request may be lost. Default: it does
	// nothing.
	Cancel func(ctx context.Context, node string, r core.CancelRequest)

	// Holds asks a live node whether it holds the claim of the slot's record at a revision.
	// An error says nothing about the claim. Default: no node answers.
	Holds func(ctx context.Context, node string, s job.Slot, claim uint64) (exchange.HoldsAnswer, error)

	// Now returns this node's estimate of the broker's clock. ClockError bounds the error of
	// Now; default: 0.
	Now        func() time.Time
	ClockError func() time.Duration

	// Plausible returns an error while Now is not plausible. Meanwhile no slot ends because of
	// its age. Default: Now is always plausible.
	Plausible func() error

	Lease, Horizon time.Duration

	// Concurrency is how many handlers of this queue run at once in this process. Default: 16.
	Concurrency int

	// Grace is how long handlers may go on after Run's context ended. Default 25 s;
	// negative: none.
	Grace time.Duration

	// Life ends with the process. If a handler returned before the lease of its node ended, or
	// may outlive its node (job.LeaseLostFinish), the consumer repeats the write of its result
	// until the write is answered or Life ends. Default: it never ends.
	Life context.Context

	// Logger receives the log. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	// DefaultConcurrency and DefaultGrace are the defaults of Config.Concurrency and
	// Config.Grace.
	DefaultConcurrency = 16
	DefaultGrace       = 25 * time.Second

	// linger is how long the consumer waits at its end for handlers whose contexts have ended.
	// Then it returns although they still run. Their slots stay claimed, and stay in the table.
	linger = 5 * time.Second
)

// Consumer works on one queue for one incarnation.
type Consumer struct {
	cfg      Config
	limiter  *limiter
	inflight *inflight.Messages
	gates    *gates

	// retired is closed by Retire. stopping is closed when no new slot may be started.
	retired  chan struct{}
	retire   func()
	stopping chan struct{}
	// handlersCtx is the parent of handler contexts. It ends with the node, or when the grace is
	// over.
	handlersCtx context.Context
	endHandlers context.CancelCauseFunc
	// finishCtx is the parent of the handler contexts that do not end with the node. It ends
	// when the grace is over. If the node loses its lease earlier, Table.Finish ends these contexts.
	finishCtx context.Context
	endFinish context.CancelCauseFunc

	pool  *pool.Pool
	slots sync.WaitGroup
}

// New returns a consumer; see Run.
func New(cfg Config) *Consumer {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	cfg.Life = cmp.Or(cfg.Life, context.Background())
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
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
	if cfg.Cancel == nil {
		cfg.Cancel = func(context.Context, string, core.CancelRequest) {}
	}
	if cfg.Holds == nil {
		cfg.Holds = func(context.Context, string, job.Slot, uint64) (exchange.HoldsAnswer, error) {
			return exchange.HoldsAnswer{}, job.ErrUnknown
		}
	}
	c := &Consumer{
		cfg: cfg, inflight: inflight.New(cfg.Lease), retired: make(chan struct{}), stopping: make(chan struct{}),
		pool: pool.New(4 * cfg.Concurrency),
	}
	c.gates = newGates(c)
	c.retire = sync.OnceFunc(func() { close(c.retired) })
	c.limiter = cfg.Table.limiter(cfg.Queue, cfg.Concurrency)
	c.handlersCtx, c.endHandlers = context.WithCancelCause(cfg.Node.Context())
	c.finishCtx, c.endFinish = context.WithCancelCause(context.Background())
	return c
}

// Retire makes Run ask for no more messages, nak those that still arrive, and end when its last
// slot has ended. The grace does not limit that time unless Run's context ends. Retire does not
// wait. It may be called more than once, and before Run.
func (c *Consumer) Retire() { c.retire() }

// Run takes slots until ctx ends. Then it asks for no more messages, naks those that still
// arrive, and waits for the handlers. When the grace is over, it ends their contexts. It waits up
// to 5 s for the handlers to return and for their results to be recorded. Then it returns nil.
//
// If the node's context ends, Run returns the cause without the grace: it waits only up to 5 s
// for the handlers that end with the node. If the settings of the queue on the broker
// differ from this node's, it returns job.ErrMismatch. It leaves no goroutines but those of
// handlers that ignore their context or may outlive the node.
func (c *Consumer) Run(ctx context.Context) error {
	defer c.endHandlers(job.ErrStopping)
	context.AfterFunc(c.handlersCtx, func() { c.limiter.close(c) })
	defer c.pool.Close()
	node := c.cfg.Node.Context()
	var loops sync.WaitGroup
	loopsCtx, stopLoops := context.WithCancel(node)
	defer func() { stopLoops(); loops.Wait() }()
	loops.Go(func() { c.inflight.Mark(loopsCtx, c.cfg.Node.Trusted) })

	runCtx, stopRun := context.WithCancel(ctx) // its end begins the grace
	defer stopRun()
	pullCtx, stopPull := context.WithCancel(loopsCtx)
	pulled := make(chan struct{})
	var failed error
	loops.Go(func() { defer close(pulled); failed = c.pull(pullCtx) })
	select {
	case <-node.Done():
	case <-runCtx.Done():
	case <-c.retired:
	case <-pulled:
		stopRun()
	}
	close(c.stopping)
	c.limiter.close(c)
	stopPull()
	<-pulled
	if left := c.cfg.Table.ids(c.cfg.Node.Name()); len(left) > 0 && ctx.Err() != nil && node.Err() == nil {
		c.cfg.Logger.Info("stopping; running slots may use their grace", "grace", max(c.cfg.Grace, 0), "slots", left)
	}
	c.drain(runCtx, node)
	if err := context.Cause(node); err != nil && !errors.Is(err, job.ErrStopping) {
		return err
	}
	return failed
}

// drain waits until no slot is in flight. The grace begins when ctx ends; when it is over, drain
// ends the contexts of the handlers. If node ends first, the contexts of the handlers that may not
// outlive it end with it. In both cases drain then waits up to linger for these handlers to return
// and for their results to be recorded.
func (c *Consumer) drain(ctx, node context.Context) {
	done := make(chan struct{})
	go func() { c.slots.Wait(); close(done) }()
	var grace <-chan time.Time
	begins, lost := ctx.Done(), false
	for ended := false; !ended; {
		select {
		case <-done:
			return
		case <-begins:
			timer := time.NewTimer(max(c.cfg.Grace, 0))
			defer timer.Stop()
			begins, grace = nil, timer.C
		case <-node.Done():
			ended, lost = true, true // handlers with job.LeaseLostFinish go on: see Table.Finish
		case <-grace:
			ended = true
			c.endHandlers(job.ErrStopping)
			c.endFinish(job.ErrStopping)
		}
	}
	lingerCtx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	if !c.cfg.Table.waitFor(lingerCtx, func(o entry) bool { return o.abandoned || o.node != c.cfg.Node.Name() || lost && o.outlives() }) {
		c.cfg.Logger.Error("handlers have not returned after their contexts ended; stopping without them",
			"node", c.cfg.Node.Name(), "slots", c.cfg.Table.ids(c.cfg.Node.Name()))
	}
}
