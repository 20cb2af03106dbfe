package croncetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/internal/fleet/inject"
	"github.com/cronce-io/cronce/job"
)

// replicaProcess is one replica. It has a connection of its own, like a process.
type replicaProcess struct {
	host      string
	scheduler *cronce.Scheduler
	inside    inject.Inside
	conn      *nats.Conn
	stop      context.CancelFunc

	// ended is closed when Run has returned err.
	ended   chan struct{}
	err     error
	crashed bool
}

// handles reports whether the replica has a handler of the job.
func (r *replicaProcess) handles(name string) bool {
	return slices.ContainsFunc(r.inside.Jobs(), func(j job.Job) bool { return j.Name == name })
}

// Start starts n more replicas. Each is a producer and a worker of all jobs that Handle has added
// so far. Start waits until they are up and the registry has their jobs. Replicas are numbered from
// 0 in the order of their start.
func (f *Fleet) Start(n int) {
	f.t.Helper()
	ctx, cancel := f.patient()
	defer cancel()
	for range n {
		f.must(f.start(ctx))
	}
	f.wait("the replicas to run", f.missing)
}

func (f *Fleet) start(ctx context.Context) (err error) {
	r := &replicaProcess{host: fmt.Sprintf("replica%d", len(f.replicas)), conn: f.connect(), ended: make(chan struct{})}
	ctx = inject.With(ctx, inject.Parts{
		Clock: clock.NewManual(f.clock.Now, f.clock.listen()), Stamp: f.clock.read, Made: func(i inject.Inside) { r.inside = i },
	})
	defer func() {
		if err != nil {
			r.conn.Close()
		}
	}()
	options := append(slices.Clone(f.cfg.options),
		cronce.WithNamespace(f.store.Namespace), cronce.WithSettings(f.settings()), cronce.WithNodeName(r.host), cronce.WithLogger(f.cfg.logger.With("replica", r.host)),
		cronce.WithMiddleware(f.recordRuns)) // the innermost one
	if r.scheduler, err = cronce.New(ctx, r.conn, options...); err != nil {
		return err
	}
	for _, j := range f.jobs {
		if err := r.scheduler.Handle(j, f.handlers[j.Name]); err != nil {
			return err
		}
	}
	var life context.Context
	life, r.stop = context.WithCancel(context.Background())
	go func() {
		defer close(r.ended)
		r.err = r.scheduler.Run(life)
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = append(f.replicas, r)
	return nil
}

// recordRuns records each start of a handler, for Runs.
func (f *Fleet) recordRuns(h job.Handler) job.Handler {
	return func(ctx context.Context, run job.Run) error {
		f.mu.Lock()
		f.runs = append(f.runs, run)
		f.mu.Unlock()
		return h(ctx, run)
	}
}

// Scheduler returns the scheduler of replica i, for tests of what a program does while it runs:
// Handle, Remove, Client. Do not call its Run.
func (f *Fleet) Scheduler(i int) *cronce.Scheduler {
	f.t.Helper()
	if r := f.replica(i); r != nil {
		return r.scheduler
	}
	return nil
}

// missing says why the replicas do not run yet. "": they run.
func (f *Fleet) missing(ctx context.Context) (string, error) {
	nodes, err := f.store.Nodes().List(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range f.alive() {
		if !slices.ContainsFunc(nodes, func(e exchange.NodeEvent) bool { return e.Node.State == exchange.NodeAlive && r.is(e.Name) }) {
			return r.host + " has no heartbeat", nil
		}
		for _, j := range r.inside.Jobs() {
			if _, _, err := f.store.Jobs().Read(ctx, j.Name); errors.Is(err, job.ErrNotFound) {
				return "job " + j.Name + " is not in the registry", nil
			} else if err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// is reports whether the node is an incarnation of the replica.
func (r *replicaProcess) is(node string) bool { return strings.HasPrefix(node, r.host+"-") }

// alive returns the replicas that run. It fails the test if one has ended by itself.
func (f *Fleet) alive() (alive []*replicaProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.replicas {
		switch {
		case r.crashed:
		case !core.IsClosed(r.ended):
			alive = append(alive, r)
		case r.err != nil:
			f.t.Fatalf("croncetest: %s has ended: %v", r.host, r.err)
		}
	}
	return alive
}

func (f *Fleet) replica(i int) *replicaProcess {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < 0 || i >= len(f.replicas) {
		f.t.Errorf("croncetest: there is no replica %d: %d were started", i, len(f.replicas))
		return nil
	}
	return f.replicas[i]
}

// Replica returns the number of the replica that runs an attempt, for Crash. It is -1 if no replica
// of the fleet does.
func (f *Fleet) Replica(run job.Run) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.IndexFunc(f.replicas, func(r *replicaProcess) bool { return r.is(run.Node) })
}

// Crash ends replica i as a kill does: nothing that it sends reaches the broker any more, and the
// contexts of its handlers end. Crash does not wait for the handlers. A handler may crash its own
// replica:
//
//	f.Crash(f.Replica(run))
//	<-ctx.Done()
//	return ctx.Err()
func (f *Fleet) Crash(i int) {
	f.t.Helper()
	r := f.replica(i)
	if r == nil {
		return
	}
	f.mu.Lock()
	r.crashed = true
	f.mu.Unlock()
	r.conn.Close()
	r.stop()
}

// Stop ends replica i as TERM does: its handlers get their grace period, and it releases the slots
// that it has not started. Stop returns when the replica has ended.
func (f *Fleet) Stop(i int) {
	f.t.Helper()
	r := f.replica(i)
	if r == nil {
		return
	}
	r.stop()
	select {
	case <-r.ended:
	case <-time.After(f.cfg.patience):
		f.t.Errorf("croncetest: %s has not ended after %v: does a handler ignore its context?", r.host, f.cfg.patience)
	}
}
