package cronce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api"
	"github.com/cronce-io/cronce/internal/fleet/inject"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/text/version"
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
	client *client.Client
	tracer *tracing.Tracer // nil: slots are not traced
	cfg    config

	failures *failures // nil: there is no error hook

	handled handled

	mu      sync.Mutex
	replica *replica.Replica // nil before Run
	begun   chan struct{}    // closed when replica is set
	ended   bool
}

// New opens a namespace on the JetStream of a connection, and creates the streams and buckets
// that do not exist. Its error wraps job.ErrMismatch if those that exist differ from the options,
// and job.ErrInvalid if an option is invalid.
//
// If the connection has no server, New waits for one until ctx ends. So with
// nats.RetryOnFailedConnect a replica can start before its broker. New and Run never close the
// connection. The first call of New leaves two goroutines and a subscription, which end with it.
func New(ctx context.Context, nc *nats.Conn, options ...Option) (*Scheduler, error) {
	cfg := config{namespace: job.DefaultNamespace, produce: true, work: true}
	for i, option := range options {
		if option == nil {
			return nil, fmt.Errorf("%w option: number %d is nil", job.ErrInvalid, i)
		}
		if err := option(&cfg); err != nil {
			return nil, err
		}
	}
	if !cfg.produce && !cfg.work {
		return nil, fmt.Errorf("%w options: WithoutProducing and WithoutWorking together leave nothing to do", job.ErrInvalid)
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
		cfg.logger.Warn("waiting for the NATS server: not connected yet", "connection", nc.Status().String())
	}
	parts := inject.From(ctx)
	cfg.clock = parts.Clock
	tracer := tracing.New(cfg.tracers, cfg.namespace, version.Module())
	store, err := kv.Open(ctx, js, kv.Options{Namespace: cfg.namespace, Want: cfg.settings, Stamp: parts.Stamp, Logger: cfg.logger, Trace: tracer.Publish})
	if err != nil {
		return nil, err
	}
	if err := store.CheckPriority(cfg.priority); err != nil {
		return nil, err
	}
	s := &Scheduler{conn: nc, store: store, tracer: tracer, cfg: cfg, begun: make(chan struct{})}
	if cfg.errorHook != nil {
		s.failures = &failures{hook: cfg.errorHook, log: cmp.Or(cfg.logger, slog.New(slog.DiscardHandler))}
	}
	s.client = newClient(s)
	if parts.Made != nil {
		parts.Made(inside{s})
	}
	return s, nil
}

// Run publishes and runs slots until ctx ends. Then it waits for running handlers up to the grace
// period, ends the contexts of the others, waits some seconds for them, and returns nil. It may be
// called once.
//
// Run returns an error if the connection is closed (it wraps nats.ErrConnectionClosed), if the
// registry cannot be read or written, if a queue on the broker has other settings than this replica
// (it wraps job.ErrMismatch), or if a handler does not return and WithEndOnStuck is set.
// While the broker cannot be reached, Run waits for it.
func (s *Scheduler) Run(ctx context.Context) error {
	r, err := s.begin()
	if err != nil {
		return err
	}
	defer s.end()
	if s.failures != nil {
		defer s.failures.flush()
	}
	if s.cfg.observer != nil {
		s.cfg.observer.Follow(s.Stats)
	}
	return r.Run(ctx)
}

// begin makes the replica.
func (s *Scheduler) begin() (*replica.Replica, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replica != nil {
		return nil, errors.New("cronce: Run was already called")
	}
	s.replica = replica.New(s.config())
	close(s.begun)
	return s.replica, nil
}

func (s *Scheduler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
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
		if c.Err != nil && !c.Informational {
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
	cfg := replica.Config{
		Store: s.store, Jobs: s.handled.jobs(), Owner: "code",
		Serve:   api.For(s.conn, s.store, time.Now, s.cfg.logger),
		Handler: s.handled.handler, Handlers: s.handled.names,
		Queues: s.queues(), Produce: s.cfg.produce,
		Concurrency: s.cfg.concurrency, QueueConcurrency: s.cfg.queueConcurrency, Priority: s.cfg.priority, Grace: s.cfg.grace, Host: s.cfg.host, Logger: s.cfg.logger,
		EndOnStuck: s.cfg.endOnStuck, Clock: s.cfg.clock, Observer: s.cfg.observer, Tracer: s.tracer, Version: version.Module(),
	}
	if s.failures != nil {
		cfg.Failed = s.failures.add
	}
	return cfg
}
