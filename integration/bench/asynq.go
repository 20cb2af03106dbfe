package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// asynqPeer is asynq, on Redis.
type asynqPeer struct {
	addr, title, keeps string

	client *asynq.Client
	handle func([]byte)
}

func (p *asynqPeer) name() string { return p.title }
func (p *asynqPeer) settings() string {
	return "Redis with appendonly yes, " + p.keeps + "; Concurrency 100, DelayedTaskCheckInterval 100ms (default 5s)"
}

func (p *asynqPeer) redis() asynq.RedisClientOpt { return asynq.RedisClientOpt{Addr: p.addr} }

func (p *asynqPeer) open(_ context.Context, handle func([]byte)) (func() error, error) {
	p.handle, p.client = handle, asynq.NewClient(p.redis())
	return func() error {
		inspect := asynq.NewInspector(p.redis())
		err := inspect.DeleteQueue("default", true)
		return errors.Join(err, inspect.Close(), p.client.Close())
	}, nil
}

func (p *asynqPeer) enter(ctx context.Context, at time.Time, payloads [][]byte) error {
	const clients = 64
	var opts []asynq.Option
	if !at.IsZero() {
		opts = append(opts, asynq.ProcessAt(at))
	}
	next, failed := make(chan []byte), make(chan error, clients)
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for data := range next {
				if _, err := p.client.EnqueueContext(ctx, asynq.NewTask("report", data), opts...); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for _, data := range payloads {
		next <- data
	}
	close(next)
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (p *asynqPeer) work(ctx context.Context) error {
	server := asynq.NewServer(p.redis(), asynq.Config{
		Concurrency: 100, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond,
	})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		p.handle(t.Payload())
		return nil
	})); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}
