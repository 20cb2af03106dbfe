package croncetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
)

// replicaProcess is one replica, as near to a process of its own as one can be.
type replicaProcess struct {
	host string
	jobs []job.Job
	conn *nats.Conn
	stop context.CancelFunc

	// ended is closed when it has; err says why.
	ended   chan struct{}
	err     error
	crashed bool
}

// Start starts n more replicas, each a producer and a worker of all jobs that were
// handed to Handle, and waits until they are up and their jobs are known. They are
// numbered from 0 in the order of their start.
func (f *Fleet) Start(n int) {
	f.t.Helper()
	if len(f.jobs) == 0 {
		f.t.Fatalf("croncetest: Start without a job: Handle comes first")
	}
	ctx, cancel := f.patient()
	defer cancel()
	for range n {
		if err := f.start(ctx); err != nil {
			f.t.Fatalf("croncetest: %v", err)
		}
	}
	f.wait("the replicas to be up", func(ctx context.Context) (string, error) { return f.missing(ctx) })
}

func (f *Fleet) start(ctx context.Context) error {
	r := &replicaProcess{
		host: fmt.Sprintf("replica%d", len(f.replicas)), jobs: slices.Clone(f.jobs), conn: f.connect(), ended: make(chan struct{}),
	}
	js, err := jetstream.New(r.conn)
	if err != nil {
		return err
	}
	store, err := f.open(ctx, js)
	if err != nil {
		return err
	}
	handlers := f.observed()
	var queues []string
	for _, j := range r.jobs {
		if !slices.Contains(queues, j.Queue) {
			queues = append(queues, j.Queue)
		}
	}
	process := replica.New(replica.Config{
		Conn: r.conn, Store: store, Jobs: r.jobs, Owner: "code", Host: r.host, Queues: queues, Produce: true,
		Handler:  func(name string) job.Handler { return handlers[name] },
		Handlers: func() []string { return slices.Sorted(maps.Keys(handlers)) },
		Clock:    clock.NewManual(f.clock.Now, f.clock.listen()),
		Version:  "croncetest", Logger: f.cfg.logger.With("replica", r.host),
	})
	var life context.Context
	life, r.stop = context.WithCancel(context.Background())
	go func() {
		defer close(r.ended)
		r.err = process.Run(life)
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = append(f.replicas, r)
	return nil
}

// observed are the handlers, with a note of each start.
func (f *Fleet) observed() map[string]job.Handler {
	all := map[string]job.Handler{}
	for name, h := range f.handlers {
		all[name] = func(ctx context.Context, run job.Run) error {
			f.mu.Lock()
			f.runs = append(f.runs, run)
			f.mu.Unlock()
			return h(ctx, run)
		}
	}
	return all
}

// missing names what is not up yet; empty: nothing.
func (f *Fleet) missing(ctx context.Context) (string, error) {
	nodes, err := f.store.Nodes().List(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range f.alive() {
		if !slices.ContainsFunc(nodes, func(e core.NodeEvent) bool { return e.Node.State == core.NodeAlive && r.is(e.Name) }) {
			return r.host + " has no heartbeat", nil
		}
		for _, j := range r.jobs {
			if _, _, err := f.store.Jobs().Read(ctx, j.Name); errors.Is(err, job.ErrNotFound) {
				return "job " + j.Name + " is not in the registry", nil
			} else if err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

func (r *replicaProcess) is(node string) bool { return strings.HasPrefix(node, r.host+"-") }

// alive are the replicas that run. One that has ended by itself fails the test.
func (f *Fleet) alive() (alive []*replicaProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.replicas {
		select {
		case <-r.ended:
			if r.err != nil && !r.crashed {
				f.t.Fatalf("croncetest: %s has ended: %v", r.host, r.err)
			}
		default:
			if !r.crashed {
				alive = append(alive, r)
			}
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

// Replica is the number of the replica that runs an attempt: for Crash.
func (f *Fleet) Replica(run job.Run) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.IndexFunc(f.replicas, func(r *replicaProcess) bool { return r.is(run.Node) })
}

// Crash ends replica i as a kill does: what it sends from now on does not reach the broker, and
// its handlers' contexts end. It does not wait for them. A handler may crash its own
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

// Stop ends replica i in order, as TERM does: its handlers get their grace, what it
// holds is given back. It returns when it has ended.
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
