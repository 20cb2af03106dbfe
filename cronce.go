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

// Scheduler is one replica of a fleet. It publishes the due slots of all jobs of its namespace,
// and runs the slots of the jobs it has handlers for. Any number of replicas may run at once. Its
// methods are safe for concurrent use.
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

// New opens a namespace on the JetStream of a connection, and creates the streams and buckets
// that do not exist. Its error wraps job.ErrMismatch if those that exist differ from the options,
// and job.ErrInvalid if an option is invalid.
//
// If the connection has no server, New waits for one until ctx ends. So with
// nats.RetryOnFailedConnect a replica can start before its broker. New and Run never close the
// connection.
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

// Handle adds a job and the handler of its slots. Call it before Run, which writes the job to the
// registry unless it holds an equal one. All replicas should add the same jobs. Its error wraps
// job.ErrInvalid if the job is invalid, if it has a handler already, or if Run was called.
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

// Run publishes and runs slots until ctx ends. Then it waits for running handlers, up to the grace
// period, and returns nil. It may be called once.
//
// Run returns an error if the connection is closed, if the registry cannot be read or written, or
// if a handler does not return and WithEndOnStuck is set. While the broker cannot be reached, Run
// waits for it.
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

// Live is for a liveness probe. It returns an error if Run makes no progress, so that only a
// restart of the process helps. It does not depend on the broker.
func (s *Scheduler) Live() error {
	if r := s.current(); r != nil {
		return r.Live()
	}
	return nil
}

// Ready is for a readiness probe. It returns an error that names what Run waits for, and an error
// before Run is called.
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
