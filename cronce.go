package cronce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/api"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Scheduler is one replica's part in the fleet: it publishes the due slots of all
// jobs of its namespace, and runs those it has handlers for. Any number of
// replicas may do so at once.
type Scheduler struct {
	conn   *nats.Conn
	store  *kv.Store
	tracer *tracing.Tracer // nil: slots are not traced
	cfg    config

	mu       sync.Mutex
	jobs     []job.Job
	handlers map[string]job.Handler
	running  bool
	replica  *replica.Replica // nil before Run
}

// New opens the namespace on the connection's JetStream, and creates there what
// is not there yet. It returns an error that wraps job.ErrMismatch when what is
// there differs from the options given, and job.ErrInvalid for bad options. A
// connection that has no server now is waited for until ctx ends: with
// nats.RetryOnFailedConnect a replica may be started before its broker. The connection
// stays the caller's: New and Run never close it.
func New(ctx context.Context, nc *nats.Conn, options ...Option) (*Scheduler, error) {
	cfg := config{namespace: kv.DefaultNamespace, produce: true, work: true}
	for _, option := range options {
		if err := option(&cfg); err != nil {
			return nil, err
		}
	}
	if nc == nil {
		return nil, fmt.Errorf("%w: the NATS connection is nil", job.ErrInvalid)
	}
	js, err := jetstream.New(nc)
	if cfg.domain != "" {
		js, err = jetstream.NewWithDomain(nc, cfg.domain)
	}
	if err != nil {
		return nil, err
	}
	if cfg.logger != nil && !nc.IsConnected() && !nc.IsClosed() {
		cfg.logger.Warn("waiting for the NATS server: the connection has none now", "connection", nc.Status().String())
	}
	tracer := tracing.New(cfg.tracers, cfg.namespace, version())
	store, err := kv.Open(ctx, js, kv.Options{Namespace: cfg.namespace, Want: cfg.settings, Logger: cfg.logger, Trace: tracer.Publish})
	if err != nil {
		return nil, err
	}
	if err := store.CheckPriority(cfg.priority); err != nil {
		return nil, err
	}
	return &Scheduler{conn: nc, store: store, tracer: tracer, cfg: cfg, handlers: map[string]job.Handler{}}, nil
}

// Handle adds a job and what runs its slots. Every replica should add the same;
// Run writes the definition to the registry unless an equal one is there. It
// returns an error that wraps job.ErrInvalid for a job that is not well formed,
// is there already, or comes after Run.
func (s *Scheduler) Handle(j job.Job, h job.Handler) error {
	if err := j.Validate(); err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("%w: job %s: its handler is nil", job.ErrInvalid, j.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running:
		return fmt.Errorf("%w: job %s: Handle comes after Run", job.ErrInvalid, j.Name)
	case s.handlers[j.Name] != nil:
		return fmt.Errorf("%w: job %s has a handler already", job.ErrInvalid, j.Name)
	}
	s.jobs = append(s.jobs, j.WithDefaults())
	s.handlers[j.Name] = h
	return nil
}

// Run works until ctx ends, gives running handlers their grace, and returns nil.
// It returns an error when the connection is closed for good, or when the
// registry cannot be written or read, or, if that is wanted, when a handler does not
// return (WithEndOnStuck); a broker that is away for a while is no error. It may be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.running
	s.running = true
	s.mu.Unlock()
	if again {
		return errors.New("cronce: Run was called before")
	}
	r := replica.New(s.config())
	s.mu.Lock()
	s.replica = r
	s.mu.Unlock()
	return r.Run(ctx)
}

// Live returns an error when Run is stuck in itself, so that only a restart of the
// process helps: for a liveness probe. It does not look at the broker; when that is
// away, Run waits for it.
func (s *Scheduler) Live() error {
	if r := s.current(); r != nil {
		return r.Live()
	}
	return nil
}

// Ready returns an error that says what is missing before Run does its part: for a
// readiness probe. Before Run it is one.
func (s *Scheduler) Ready() error {
	r := s.current()
	if r == nil {
		return errors.New("cronce: Run has not begun")
	}
	for _, c := range r.Ready() {
		if c.Err != nil && !c.Told {
			return fmt.Errorf("%s: %w", c.Name, c.Err)
		}
	}
	return nil
}

func (s *Scheduler) current() *replica.Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replica
}

func (s *Scheduler) config() replica.Config {
	queues := s.cfg.queues
	if len(queues) == 0 {
		for _, j := range s.jobs {
			if !slices.Contains(queues, j.Queue) {
				queues = append(queues, j.Queue)
			}
		}
	}
	if !s.cfg.work {
		queues = nil
	}
	return replica.Config{
		Conn: s.conn, Store: s.store, Jobs: s.jobs, Owner: "code",
		Serve:    api.For(s.conn, s.store, time.Now, s.cfg.logger),
		Handler:  func(name string) job.Handler { return s.handlers[name] },
		Handlers: func() []string { return slices.Sorted(maps.Keys(s.handlers)) },
		Queues:   queues, Produce: s.cfg.produce,
		Concurrency: s.cfg.concurrency, Priority: s.cfg.priority, Grace: s.cfg.grace, Host: s.cfg.host, Logger: s.cfg.logger,
		EndOnStuck: s.cfg.endOnStuck, Observer: s.cfg.observer, Tracer: s.tracer, Version: version(),
	}
}
