package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/lab/torture/plan"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// NodeSpec configures a process of the fleet.
type NodeSpec struct {
	// Process names this life of the process: "w1.3". Host names the process: "w1".
	Process string `json:"process"`
	Host    string `json:"host"`

	Namespace string        `json:"namespace"`
	Lease     time.Duration `json:"lease"`
	Seed      uint64        `json:"seed"`

	// From is when the torture begins, by the broker's clock. Boot is the same instant as a
	// reading of boot.Now. The torture lasts for Duration.
	From     time.Time     `json:"from"`
	Boot     time.Duration `json:"boot"`
	Duration time.Duration `json:"duration"`

	Produce bool `json:"produce"`
	Work    bool `json:"work"`

	// Record is the path of the file to which the process appends its record. Jobs is the path of a
	// file with the names of the jobs that the process has handlers for. If the file does not exist,
	// the process has handlers for all jobs. It reads the file again at each HUP. Proxy is the address
	// through which it reaches the servers.
	Record string `json:"record"`
	Jobs   string `json:"jobs"`
	Proxy  string `json:"proxy"`

	ClockOffset time.Duration `json:"clock_offset"`

	// Server, Context and Creds are the values of the global flags.
	Server  string `json:"server,omitempty"`
	Context string `json:"context,omitempty"`
	Creds   string `json:"creds,omitempty"`
}

const (
	// grace is how long running handlers may go on after a TERM.
	grace = 2 * time.Second

	// diedByItself is the exit status of a process that a handler ended as planned.
	diedByItself = 86

	// unrecorded is the exit status of a process that cannot write its record, for example because
	// the disk is full. A run that is not recorded proves nothing.
	unrecorded = 87
)

// RunNode runs one process of the fleet until ctx ends: a producer, a worker or both, like
// "cronce run", but with handlers that record what they do.
func RunNode(ctx context.Context, spec NodeSpec, connect func(context.Context, nats.CustomDialer) (*nats.Conn, error), log *slog.Logger) error {
	rec, err := newRecorder(spec.Record, spec.Process)
	if err != nil {
		return err
	}
	defer rec.close()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, hangupSignal)
	defer signal.Stop(hangups)
	// This comes before the file of jobs is read: torture changes the file, and sends a HUP
	// only to a process that is up.
	if err := rec.add(promise.Line{What: promise.LineUp}); err != nil {
		endUnrecorded(err)
	}
	nc, err := connectWithRetry(ctx, connect, proxy.Dialer(spec.Proxy), log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	store, err := kv.Open(ctx, js, kv.Options{Namespace: spec.Namespace, Logger: log})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go rec.watch(ended)

	h := newHandlers(spec, rec)
	if err := h.read(); err != nil {
		return err
	}
	cfg := replica.Config{
		Store: store, Produce: spec.Produce, Grace: grace, Host: spec.Host, ClockShift: spec.ClockOffset,
		Owner: plan.JobOwner, Handler: h.handler, Handlers: h.names, Logger: log, Version: "torture",
	}
	if spec.Work {
		cfg.Queues = plan.Queues(maps.Values(h.cases))
	}
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { h.trigger(ctx, spec, store, log) })
	r := replica.New(cfg)
	others.Go(func() { h.reload(ctx, hangups, r, log) })
	defer others.Wait()
	defer cancel()
	return r.Run(ctx)
}

// connectWithRetry tries to connect until that succeeds or ctx ends.
func connectWithRetry(ctx context.Context, connect func(context.Context, nats.CustomDialer) (*nats.Conn, error), d nats.CustomDialer, log *slog.Logger) (*nats.Conn, error) {
	for {
		nc, err := connect(ctx, d)
		if err == nil {
			return nc, nil
		}
		log.Info("not connected yet", "error", err)
		if !wire.Wait(ctx, 200*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

// endUnrecorded ends this process, which cannot write its record.
func endUnrecorded(err error) {
	fmt.Fprintln(os.Stderr, "write the record:", err)
	os.Exit(unrecorded)
}

// handlers are the handlers of one process, for those cases whose jobs its file names.
type handlers struct {
	rec   *recorder
	seed  uint64
	cases map[string]plan.Case
	works bool // the process is a worker
	file  string

	mu    sync.Mutex
	named map[string]bool // the jobs that the file names
}

func newHandlers(spec NodeSpec, rec *recorder) *handlers {
	h := &handlers{rec: rec, seed: spec.Seed, cases: map[string]plan.Case{}, works: spec.Work, file: spec.Jobs}
	for _, c := range plan.Bounded(spec.Lease, spec.From, spec.From.Add(spec.Duration).Truncate(time.Second)) {
		h.cases[c.Job.Name] = c
	}
	return h
}

// read reads the file of jobs. If there is none, all cases have handlers. A process that is no worker
// has none.
func (h *handlers) read() error {
	if !h.works {
		return nil
	}
	names := slices.Collect(maps.Keys(h.cases))
	data, err := os.ReadFile(h.file)
	switch {
	case err == nil:
		names = strings.Fields(string(data))
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("read jobs: %w", err)
	}
	named := map[string]bool{}
	for _, name := range names {
		named[name] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.named = named
	return nil
}

// reload reads the file again at each HUP, and applies its jobs to the registry, as
// "cronce run" does.
func (h *handlers) reload(ctx context.Context, hangups <-chan os.Signal, r *replica.Replica, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		if err := h.read(); err != nil {
			log.Error("job file not reloaded", "error", err)
			continue
		}
		jobs := codec.Map(h.names(), func(name string) job.Job { return h.cases[name].Job })
		if err := r.Apply(ctx, jobs, true); err != nil {
			log.Error("jobs not applied", "error", err)
		}
	}
}

// names returns the jobs that the process has handlers for.
func (h *handlers) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.named))
}

// handler returns the handler of a job, or nil if the process has none.
func (h *handlers) handler(name string) job.Handler {
	h.mu.Lock()
	named := h.named[name]
	h.mu.Unlock()
	c, ok := h.cases[name]
	if !ok || !named {
		return nil
	}
	return func(ctx context.Context, run job.Run) error { return h.run(ctx, c, run) }
}

// run is the handler of every case. It records its start, works until it is done or its
// context ends, and records its end. It also records when its context ended, because the handler
// may return much later.
func (h *handlers) run(ctx context.Context, c plan.Case, run job.Run) error {
	line := promise.Line{Slot: run.Slot.ID(), Attempt: run.Attempt, Fence: run.Fence, Node: run.Node}
	record := func(what, result, cause string) {
		l := line
		l.What, l.Result, l.Cause = what, result, cause
		if err := h.rec.add(l); err != nil {
			endUnrecorded(err)
		}
	}
	record(promise.LineStart, "", "")
	noted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(noted)
		record(promise.LineCancel, "", cause(ctx))
	})
	act := c.Attempt(h.seed, run.Slot, run.Attempt)
	done := time.NewTimer(act.Work)
	defer done.Stop()
	result := act.Result
	select {
	case <-done.C:
	case <-ctx.Done():
		result = plan.ResultError
	}
	if !stop() {
		<-noted // the line about the context comes before that about the end
	}
	record(promise.LineEnd, result, "")
	// JSON that escapes HTML needs the most bytes for "<".
	words := strings.Repeat("<", act.Words)
	_, _ = io.WriteString(run.Output, words)
	return finish(result, words)
}

// finish returns what the handler must return. If the result says so, it panics or ends the process
// instead.
func finish(result, words string) error {
	failed := errors.New("failed as planned" + words)
	switch result {
	case plan.ResultOK:
		return nil
	case plan.ResultPermanent:
		return job.Permanent(failed)
	case plan.ResultLater:
		return job.RetryAfter(rand.N(time.Second), failed)
	case plan.ResultPanic:
		panic(failed.Error())
	case plan.ResultDie:
		time.Sleep(100 * time.Millisecond) // so that recorder.watch can record a freeze that has just ended
		os.Exit(diedByItself)
	}
	return failed
}

// trigger triggers the runs of jobs that have no plan. All processes trigger the same runs at
// about the same time. A run must exist if one of its triggers was acknowledged.
func (h *handlers) trigger(ctx context.Context, spec NodeSpec, store *kv.Store, log *slog.Logger) {
	c := client.Attach(attach.Parts{
		Jobs: store.Jobs(), Ledger: store.Ledger(), Slots: store.Slots(), Timers: store.Timers(), Settings: store.Settings(), Operator: spec.Process,
		Now: func(context.Context) (time.Time, error) { return spec.From.Add(boot.Now() - spec.Boot), nil },
	})
	for _, k := range h.cases {
		if !k.Triggered {
			continue
		}
		passed := boot.Now() - spec.Boot
		for n := int(max(passed, 0)/k.Every) + 1; time.Duration(n)*k.Every < spec.Duration; n++ {
			if !wire.Wait(ctx, spec.Boot+time.Duration(n)*k.Every-boot.Now()) {
				return
			}
			s, at := k.Order(spec.From, n)
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := c.Trigger(attempt, s.Job, client.TriggerOptions{Key: s.Token, At: at})
			cancel()
			if err != nil {
				log.Info("run not triggered", "slot", s.ID(), "error", err)
			} else if err := h.rec.add(promise.Line{What: promise.LineOrder, Slot: s.ID()}); err != nil {
				log.Error("record not written", "error", err)
				return
			}
		}
	}
}

// cause returns the reason why a context ended: the text of a known error, or else that of the cause.
func cause(ctx context.Context) string {
	err := context.Cause(ctx)
	for _, known := range []error{job.ErrLeaseLost, job.ErrStopping, job.ErrTimeout, job.ErrCancelled, job.ErrReplaced} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}
