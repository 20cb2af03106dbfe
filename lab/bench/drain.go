package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// DrainOurs measures one worker that drains slots of the given number of jobs, with default settings
// and a handler that does nothing. It creates a namespace and deletes it. The measured time is from
// the start of the first handler until the broker has every ack.
func DrainOurs(ctx context.Context, connect Connect, namespace string, replicas, slots, jobs int, overlap job.Overlap) (_ Rate, err error) {
	f, err := newFleet(ctx, connect, namespace, replicas)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return Rate{}, err
	}
	// Store the slots before the worker starts.
	if err := fill(ctx, f.store, makeJobs(jobs, job.Job{Schedule: "@every 1s", Overlap: overlap}), slots); err != nil {
		return Rate{}, err
	}
	stream, err := f.js.Stream(ctx, namespace+"_slots")
	if err != nil {
		return Rate{}, err
	}
	var first, runs atomic.Int64
	ran := make(chan struct{})
	if err := f.add(false, func(context.Context, job.Run) error {
		if first.Load() == 0 {
			first.CompareAndSwap(0, time.Now().UnixNano())
		}
		if runs.Add(1) == int64(slots) {
			close(ran) // from now on the stream is polled often; earlier that would disturb the worker
		}
		return nil
	}); err != nil {
		return Rate{}, err
	}
	if err := awaitAll(f.ctx, ran, stream); err != nil {
		return Rate{}, err
	}
	return Rate{slots, time.Since(time.Unix(0, first.Load()))}, nil
}

// awaitAll waits until all slots have run or were skipped, and their messages are acked. A slot is
// skipped if its predecessor still runs.
func awaitAll(ctx context.Context, ran <-chan struct{}, stream jetstream.Stream) error {
	const seldom = 250 * time.Millisecond // frequent polling would disturb the broker
	for {
		select {
		case <-ran:
			_, err := empty(ctx, stream)
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(seldom):
		}
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.Msgs == 0 {
			return nil
		}
	}
}

// fill writes the definitions of jobs. Then it publishes slots of the last seconds, one of each job
// for each second.
func fill(ctx context.Context, store *kv.Store, jobs []job.Job, slots int) error {
	revisions, err := enter(ctx, store, jobs)
	if err != nil {
		return err
	}
	at := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(publications)
	for i := range slots {
		if i%len(jobs) == 0 {
			at = at.Add(-time.Second)
		}
		j := jobs[i%len(jobs)]
		slot := job.NewSlot(j.Name, at)
		group.Go(func() error {
			_, err := store.Slots().Publish(ctx, j.Queue, core.Message{Slot: slot, JobRevision: revisions[i%len(jobs)], Node: "bench", Due: slot.At}, []byte(`{"n":1}`))
			return err
		})
	}
	return group.Wait()
}

// writers is how many goroutines write definitions. publications is how many publish slots: so many
// that slow storage gets full batches.
const writers, publications = 64, 2048

// makeJobs returns n copies of a job, each with a name of its own, with defaults.
func makeJobs(n int, like job.Job) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = like
		jobs[i].Name = fmt.Sprintf("report-%d", i)
		jobs[i] = jobs[i].WithDefaults()
	}
	return jobs
}

// enter writes the definitions of new jobs and returns their revisions.
func enter(ctx context.Context, store *kv.Store, jobs []job.Job) ([]uint64, error) {
	revisions := make([]uint64, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i, j := range jobs {
		group.Go(func() (err error) {
			d := plans.Definition{Job: j, Owner: plans.OwnerCode, Node: "bench", Nonce: j.Name}
			revisions[i], err = store.Jobs().Write(ctx, d, 0)
			return err
		})
	}
	return revisions, group.Wait()
}
