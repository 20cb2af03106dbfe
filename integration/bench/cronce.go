package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/job"
)

// croncePeer is Cronce. Its runs are triggered, because the work of the other peers has no schedule
// either. A worker treats them like slots of a schedule.
type croncePeer struct {
	url, title, keeps string

	nc   *nats.Conn
	s    *cronce.Scheduler
	next int
}

func (p *croncePeer) name() string { return p.title }
func (p *croncePeer) settings() string {
	return "one server, file storage, " + p.keeps + "; default settings, overlap allow; TriggerMany with 5000 runs a call"
}

const namespace = "bench_peers"

func (p *croncePeer) open(ctx context.Context, handle func([]byte)) (_ func() error, err error) {
	if p.nc, err = nats.Connect(p.url); err != nil {
		return nil, err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, err
	}
	if p.s, err = p.scheduler(ctx, handle); err != nil {
		return nil, err
	}
	if err := p.register(ctx, handle); err != nil {
		return nil, err
	}
	return func() error {
		defer p.nc.Close()
		return space.Remove(context.WithoutCancel(ctx), js, namespace)
	}, nil
}

func (p *croncePeer) scheduler(ctx context.Context, handle func([]byte)) (*cronce.Scheduler, error) {
	s, err := cronce.New(ctx, p.nc, cronce.WithNamespace(namespace))
	if err != nil {
		return nil, err
	}
	return s, s.Handle(job.Job{Name: "report", Schedule: "@yearly", Overlap: job.OverlapAllow}, func(_ context.Context, run job.Run) error {
		handle(run.Payload)
		return nil
	})
}

// register runs another scheduler until it has written the job's definition. So runs can be entered
// before the scheduler that is measured starts.
func (p *croncePeer) register(ctx context.Context, handle func([]byte)) error {
	s, err := p.scheduler(ctx, handle)
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	for {
		if _, err = s.Client().Job(ctx, "report"); !errors.Is(err, job.ErrNotFound) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	return errors.Join(err, <-ended)
}

func (p *croncePeer) enter(ctx context.Context, at time.Time, payloads [][]byte) error {
	const batch = 5000 // as many as River's batches
	for part := range slices.Chunk(payloads, batch) {
		orders := make([]client.TriggerOptions, len(part))
		for i, data := range part {
			orders[i] = client.TriggerOptions{Key: strconv.Itoa(p.next + i), At: at, Payload: data}
		}
		if _, err := p.s.Client().TriggerMany(ctx, "report", orders); err != nil {
			return fmt.Errorf("enter the runs from %d on: %w", p.next, err)
		}
		p.next += len(part)
	}
	return nil
}

func (p *croncePeer) work(ctx context.Context) error { return p.s.Run(ctx) }
