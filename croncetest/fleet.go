package croncetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Fleet is a set of replicas on one server. It ends with the test. Call Handle, Start, Stop,
// Advance, AdvanceTo, Settle, Planned and CheckSucceeded from the test's own goroutine. The other
// methods are safe for concurrent use, also by handlers.
type Fleet struct {
	t      T
	cfg    config
	clock  *manual
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	store  *kv.Store

	jobs     []job.Job
	handlers map[string]job.Handler

	// settled is the time up to which all slots have their outcome.
	settled time.Time

	mu       sync.Mutex
	replicas []*replicaProcess
	runs     []job.Run
}

// New starts a server without replicas: see Handle and Start.
func New(t T, options ...Option) *Fleet {
	t.Helper()
	cfg := config{
		start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), lease: 3 * time.Second, patience: 2 * time.Minute,
		logger: slog.New(slog.DiscardHandler),
	}
	for i, option := range options {
		if option == nil {
			t.Fatalf("croncetest: invalid option: number %d is nil", i)
		}
		if err := option(&cfg); err != nil {
			t.Fatalf("croncetest: %v", err)
		}
	}
	f := &Fleet{t: t, cfg: cfg, handlers: map[string]job.Handler{}, clock: newManual(cfg.start), settled: cfg.start}
	f.serve()
	f.conn = f.connect()
	var err error
	f.js, err = jetstream.New(f.conn)
	f.must(err)
	ctx, cancel := f.patient()
	defer cancel()
	f.store, err = f.open(ctx, f.js)
	f.must(err)
	return f
}

// must fails the test if err is not nil.
func (f *Fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("croncetest: %v", err)
	}
}

// serve starts the server, in this process and without a port.
func (f *Fleet) serve() {
	dir, err := os.MkdirTemp("", "croncetest")
	f.must(err)
	f.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f.server, err = server.NewServer(&server.Options{
		ServerName: "croncetest", DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	f.must(err)
	f.server.Start()
	f.t.Cleanup(func() {
		f.end()
		f.server.Shutdown()
		f.server.WaitForShutdown()
	})
	if !f.server.ReadyForConnections(f.cfg.patience) {
		f.t.Fatalf("croncetest: the server is not ready after %v", f.cfg.patience)
	}
}

// end ends all replicas, and then the connections.
func (f *Fleet) end() {
	for i := range f.replicas {
		f.Stop(i)
	}
	for _, r := range f.replicas {
		r.conn.Close()
	}
	if f.conn != nil {
		f.conn.Close()
	}
}

func (f *Fleet) connect() *nats.Conn {
	nc, err := nats.Connect("", nats.InProcessServer(f.server), nats.MaxReconnects(-1))
	f.must(err)
	return nc
}

func (f *Fleet) open(ctx context.Context, js jetstream.JetStream) (*kv.Store, error) {
	return kv.Open(ctx, js, kv.Options{Want: f.settings(), Stamp: f.clock.read, Logger: f.cfg.logger})
}

func (f *Fleet) settings() job.Settings { return job.Settings{Lease: f.cfg.lease, Replicas: 1} }

func (f *Fleet) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), f.cfg.patience, fmt.Errorf("no result after %v", f.cfg.patience))
}

// Now returns the time on the fleet's clock.
func (f *Fleet) Now() time.Time { return f.clock.Now().UTC() }

// Conn returns a connection to the server, for whatever else the test or its handlers do there. It
// is closed with the test.
func (f *Fleet) Conn() *nats.Conn { return f.conn }

// Handle adds a job and its handler to the replicas that are started from now on. It replaces a job
// of the same name, so that a test can start a new release beside an old one. An invalid job, or a
// nil handler, fails the test.
func (f *Fleet) Handle(j job.Job, h job.Handler) {
	f.t.Helper()
	f.must(j.Validate())
	if h == nil {
		f.t.Fatalf("croncetest: the handler of job %s is nil", j.Name)
	}
	f.jobs = append(slices.DeleteFunc(slices.Clone(f.jobs), func(o job.Job) bool { return o.Name == j.Name }), j.WithDefaults())
	f.handlers[j.Name] = h
}

// Client returns a client of the fleet, with its clock and the operator "croncetest". Start the
// fleet before you order runs, because the replicas write the jobs to the registry.
func (f *Fleet) Client() *client.Client {
	return client.Attach(attach.Of(f.conn, f.store, attach.Options{Operator: "croncetest", Now: f.clock.Now}))
}

// Trigger orders one run of a job now, outside its plan. The same key is the same run; without a
// key, each call is a run of its own. If the payload is empty, the run has that of the job. Settle
// waits for the run.
func (f *Fleet) Trigger(name, key string, payload json.RawMessage) client.Run {
	f.t.Helper()
	ctx, cancel := f.patient()
	defer cancel()
	f.join(ctx, f.alive())
	run, err := f.Client().Trigger(ctx, name, client.TriggerOptions{Key: key, Payload: payload})
	if err != nil {
		f.t.Errorf("croncetest: %v", err)
	}
	return run
}

// Records returns the records of a job's slots in the order of their instants. Triggered runs, which
// have no instant, come first. A slot has no record before it is claimed or has an outcome. Missed slots
// that follow one another share a record, a range. Records returns it once for each of them.
func (f *Fleet) Records(name string) []job.Record {
	f.t.Helper()
	ctx, cancel := f.patient()
	defer cancel()
	var all []job.Record
	for e, err := range f.store.Ledger().List(ctx, kv.ListFilter{Job: name}) {
		if err != nil {
			f.t.Errorf("croncetest: %v", err)
			return all
		}
		all = append(all, e.Record)
	}
	all = f.spread(ctx, name, all)
	slices.SortFunc(all, func(x, y job.Record) int {
		return cmp.Or(x.Slot.At.Compare(y.Slot.At), strings.Compare(x.Slot.ID(), y.Slot.ID()))
	})
	return all
}

// spread replaces the record of each range by one for each of its slots that has none of its own.
func (f *Fleet) spread(ctx context.Context, name string, all []job.Record) []job.Record {
	own := map[job.Slot]bool{}
	for _, r := range all {
		own[r.Slot] = true
	}
	var spread []job.Record
	for _, r := range all {
		if !r.Slot.Range {
			spread = append(spread, r)
			continue
		}
		entry, _, err := f.store.Jobs().Read(ctx, name)
		if err != nil {
			f.t.Errorf("croncetest: job %s: %v", name, err)
		}
		for at := range entry.Slots(r.Slot.At.Add(-time.Second), r.Last) {
			if r.Slot = job.NewSlot(name, at); !own[r.Slot] {
				own[r.Slot] = true
				spread = append(spread, r)
			}
		}
	}
	return spread
}

// Runs returns every start of a handler of the job, in order. After retries and crashes there are
// more of them than slots.
func (f *Fleet) Runs(name string) []job.Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.runs), func(r job.Run) bool { return r.Slot.Job != name })
}

// Planned returns the instants of the job's slots, by the definitions that it had then: from its
// first definition up to the time of the last Advance or Settle.
func (f *Fleet) Planned(name string) []time.Time {
	f.t.Helper()
	ctx, cancel := f.patient()
	defer cancel()
	entry, _, err := f.store.Jobs().Read(ctx, name)
	if err != nil {
		f.t.Errorf("croncetest: job %s: %v", name, err)
		return nil
	}
	return planned(entry, time.Time{}, f.settled)
}

// CheckSucceeded fails the test for each Planned slot of the job that has not succeeded, with the
// handler's error, and if there is no planned slot. To check how often handlers were started, see
// Runs.
func (f *Fleet) CheckSucceeded(name string) {
	f.t.Helper()
	records := map[string]job.Record{}
	for _, r := range f.Records(name) {
		records[r.Slot.ID()] = r
	}
	plan := f.Planned(name)
	if len(plan) == 0 {
		f.t.Errorf("croncetest: job %s: no slot was due until %s", name, f.settled.UTC().Format(time.RFC3339))
	}
	for _, at := range plan {
		id := job.NewSlot(name, at).ID()
		switch r, recorded := records[id]; {
		case !recorded:
			f.t.Errorf("croncetest: %s has no record", id)
		case r.State == job.Succeeded:
		case r.Error == "":
			f.t.Errorf("croncetest: %s is %s", id, r.State)
		default:
			f.t.Errorf("croncetest: %s is %s: %s", id, r.State, r.Error)
		}
	}
}

// T is the part of a test that a fleet uses. *testing.T and *testing.B implement it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Option changes a fleet. An invalid one, or nil, fails the test.
type Option func(*config) error

type config struct {
	start    time.Time
	lease    time.Duration
	patience time.Duration
	logger   *slog.Logger
	options  []cronce.Option
}

// At sets the clock at the beginning, to an RFC 3339 time. Default: midnight UTC on 2026-01-01.
func At(text string) Option {
	return func(c *config) (err error) {
		if c.start, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("invalid At %q: want an RFC 3339 time like 2026-03-28T00:00:00Z", text)
		}
		return nil
	}
}

// Lease sets how long a replica that has crashed keeps what it claimed, in real time, at least 1 s.
// On a machine that is too busy to run a replica for that long, another replica takes over its
// slots and starts them again. Default: 3 s.
func Lease(d time.Duration) Option {
	return func(c *config) error { c.lease = d; return nil }
}

// Patience sets how long, in real time, an operation waits before it fails the test. Default: 2
// min, which only a test that hangs reaches.
func Patience(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("invalid Patience %v: want more than zero", d)
		}
		c.patience = d
		return nil
	}
}

// Logger sets the logger of the replicas. Default: no logs.
func Logger(l *slog.Logger) Option {
	return func(c *config) error { c.logger = cmp.Or(l, c.logger); return nil }
}

// Options gives each replica options of cronce.New, such as WithMiddleware, WithErrorHook and
// WithConcurrency. The fleet overrides WithNamespace, WithNodeName, WithLogger and WithSettings. Its
// server has no domain, so Start fails the test if WithDomain is among them. Default: none.
func Options(options ...cronce.Option) Option {
	return func(c *config) error { c.options = append(c.options, options...); return nil }
}
