package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// croncePeer is this module: runs that are triggered, with a payload each, as the
// others have them. A slot of a schedule takes the same way.
type croncePeer struct {
	url, title, keeps string

	nc   *nats.Conn
	s    *cronce.Scheduler
	next int
}

func (p *croncePeer) name() string { return p.title }
func (p *croncePeer) settings() string {
	return "one server, file storage, " + p.keeps + "; default settings, overlap allow"
}

const namespace = "bench_peers"

func (p *croncePeer) open(ctx context.Context, handle func([]byte)) (_ func() error, err error) {
	if p.nc, err = nats.Connect(p.url); err != nil {
		return nil, err
	}
	if p.s, err = cronce.New(ctx, p.nc, cronce.WithNamespace(namespace)); err != nil {
		return nil, err
	}
	err = p.s.Handle(job.Job{Name: "report", Schedule: "@yearly", Overlap: job.OverlapAllow}, func(_ context.Context, run job.Run) error {
		handle(run.Payload)
		return nil
	})
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, err
	}
	// What is triggered has to be in the registry, and then waits for a worker.
	store, err := kv.Open(ctx, js, kv.Options{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	d := job.Definition{Owner: job.OwnerCode, Node: "bench", Nonce: "bench",
		Job: job.Job{Name: "report", Schedule: "@yearly", Overlap: job.OverlapAllow}.WithDefaults()}
	if _, err := store.Jobs().Write(ctx, d, 0); err != nil {
		return nil, err
	}
	return func() error {
		defer p.nc.Close()
		return kv.Remove(context.WithoutCancel(ctx), js, namespace)
	}, nil
}

func (p *croncePeer) enter(ctx context.Context, at time.Time, payloads [][]byte) error {
	const callers = 64
	keys, errs := make(chan int), make(chan error, len(payloads))
	var group sync.WaitGroup
	first := p.next
	for range callers {
		group.Go(func() {
			for i := range keys {
				if _, err := p.s.Trigger(ctx, "report", cronce.TriggerOptions{Key: strconv.Itoa(first + i), At: at, Payload: payloads[i]}); err != nil {
					errs <- err
				}
			}
		})
	}
	for i := range payloads {
		keys <- i
	}
	p.next += len(payloads)
	close(keys)
	group.Wait()
	close(errs)
	return errors.Join(<-errs)
}

func (p *croncePeer) work(ctx context.Context) error { return p.s.Run(ctx) }
