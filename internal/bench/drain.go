package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/replica"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// spread is over how many jobs the slots of a drain are spread.
const spread = 10

// Drain has one worker, with default settings and a handler that does nothing,
// drain slots of a namespace that it creates and deletes. work is the worker's
// connection, aside another one. It is timed from the first handler's start to
// the last ack, as the broker counts them.
func Drain(ctx context.Context, work, aside *nats.Conn, namespace string, replicas, slots int, overlap job.Overlap) (_ Rate, err error) {
	js, err := jetstream.New(aside)
	if err != nil {
		return Rate{}, err
	}
	defer func() { err = errors.Join(err, kv.Remove(context.WithoutCancel(ctx), js, namespace)) }()
	store, err := open(ctx, work, namespace, replicas)
	if err != nil {
		return Rate{}, err
	}
	var jobs []job.Job
	for i := range spread {
		jobs = append(jobs, job.Job{Name: fmt.Sprintf("report-%d", i), Schedule: "@every 1s", Overlap: overlap}.WithDefaults())
	}
	var first, runs atomic.Int64
	ran := make(chan struct{})
	r := replica.New(replica.Config{
		Conn: work, Store: store, Jobs: jobs, Owner: "bench", Queues: []string{"default"},
		Handler: func(string) job.Handler {
			return func(context.Context, job.Run) error {
				if first.Load() == 0 {
					first.CompareAndSwap(0, time.Now().UnixNano())
				}
				if runs.Add(1) == int64(slots) {
					close(ran) // the rest is to be waited for, and not to be disturbed before
				}
				return nil
			}
		},
		Handlers: func() []string { return nil },
	})
	// The queue first: the slots are there before the worker is.
	if err := r.Apply(ctx, jobs, false); err != nil {
		return Rate{}, err
	}
	if err := fill(ctx, store, jobs, slots); err != nil {
		return Rate{}, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(working) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	select {
	case <-ran:
	case err := <-ended:
		ended <- nil
		return Rate{}, err
	}
	stream, err := js.Stream(ctx, namespace+"_slots")
	if err != nil {
		return Rate{}, err
	}
	if err := Empty(ctx, stream); err != nil {
		return Rate{}, err
	}
	return Rate{slots, time.Since(time.Unix(0, first.Load()))}, nil
}

func open(ctx context.Context, nc *nats.Conn, namespace string, replicas int) (*kv.Store, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return kv.Open(ctx, js, kv.Options{Namespace: namespace, Want: job.Settings{Replicas: replicas}})
}

// fill publishes the newest slots before now, spread over jobs.
func fill(ctx context.Context, store *kv.Store, jobs []job.Job, slots int) error {
	revisions := map[string]uint64{}
	for _, j := range jobs {
		_, revision, err := store.Jobs().Read(ctx, j.Name)
		if err != nil {
			return err
		}
		revisions[j.Name] = revision
	}
	at := time.Now()
	waits := make([]func(context.Context) (bool, error), 0, slots)
	for i := range slots {
		if i%len(jobs) == 0 {
			at = at.Add(-time.Second)
		}
		j := jobs[i%len(jobs)]
		slot := job.NewSlot(j.Name, at)
		wait, err := store.Slots().Publish(j.Queue, job.Message{Slot: slot, JobRevision: revisions[j.Name], Node: "bench", Due: slot.At}, []byte(`{"n":1}`))
		if err != nil {
			return err
		}
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		if _, err := wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
