package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/replica"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Lateness is from the instants of slots to the starts of their handlers, sorted.
type Lateness []time.Duration

// At is the quantile q of it, from 0 to 1; zero when there is none.
func (l Lateness) At(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(int(q*float64(len(l))), len(l)-1)]
}

func (l Lateness) String() string {
	return fmt.Sprintf("%d slots, p50 %v, p99 %v, at most %v", len(l), l.At(0.5), l.At(0.99), l.At(1))
}

// MeasureLateness runs jobs that are due every second, in a namespace that it
// creates and deletes, with one worker and the given number of producers, each on a
// connection of its own, until it has seen so many seconds of them. It reads this
// machine's clock, which has to be the broker's.
func MeasureLateness(ctx context.Context, connect func() (*nats.Conn, error), namespace string, replicas, jobs, producers, seconds int) (_ Lateness, err error) {
	aside, err := connect()
	if err != nil {
		return nil, err
	}
	defer aside.Close()
	js, err := jetstream.New(aside)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kv.Remove(context.WithoutCancel(ctx), js, namespace)) }()
	w := &watch{late: map[time.Time]Lateness{}, seconds: seconds, jobs: jobs, done: make(chan struct{})}
	var all []job.Job
	for i := range jobs {
		all = append(all, job.Job{Name: fmt.Sprintf("tick-%d", i), Schedule: "* * * * * *", Overlap: job.OverlapAllow}.WithDefaults())
	}
	conns := make([]*nats.Conn, producers)
	for i := range conns {
		if conns[i], err = connect(); err != nil {
			return nil, err
		}
		defer conns[i].Close()
	}
	running, stop := context.WithCancel(ctx)
	group, running := errgroup.WithContext(running)
	defer func() { stop(); err = errors.Join(err, group.Wait()) }()
	for i, nc := range conns {
		store, err := open(ctx, nc, namespace, replicas)
		if err != nil {
			return nil, err
		}
		cfg := replica.Config{Conn: nc, Store: store, Produce: true, Handlers: func() []string { return nil }}
		if i == 0 {
			cfg.Jobs, cfg.Owner, cfg.Queues = all, "bench", []string{"default"}
			cfg.Handler = func(string) job.Handler { return w.handle }
		}
		r := replica.New(cfg)
		group.Go(func() error { return r.Run(running) })
	}
	select {
	case <-w.done:
	case <-running.Done():
		return nil, context.Cause(running)
	}
	return w.result(), nil
}

// watch notes when handlers start.
type watch struct {
	jobs, seconds int
	done          chan struct{}

	mu   sync.Mutex
	late map[time.Time]Lateness // by instant
	full int                    // instants of which all jobs have been seen
}

func (w *watch) handle(_ context.Context, run job.Run) error {
	late := time.Since(run.Slot.At)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late[run.Slot.At] = append(w.late[run.Slot.At], late)
	if len(w.late[run.Slot.At]) == w.jobs {
		if w.full++; w.full == w.seconds+warmUp {
			close(w.done)
		}
	}
	return nil
}

// warmUp is how many seconds are left out at the start.
const warmUp = 2

// result is of the full instants, without the first ones.
func (w *watch) result() (all Lateness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var instants []time.Time
	for at, late := range w.late {
		if len(late) == w.jobs {
			instants = append(instants, at)
		}
	}
	slices.SortFunc(instants, time.Time.Compare)
	for _, at := range instants[min(warmUp, len(instants)):] {
		all = append(all, w.late[at]...)
	}
	slices.Sort(all)
	return all
}
