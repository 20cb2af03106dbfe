package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// pullWait is how long one request for messages stands. It is short because a
// request cannot be taken back: a worker that stops still has to receive, and
// give back, what comes until then; and one that is frozen swallows messages for
// no longer.
//
// It varies a little: with requests in step with jobs of every second, the same
// worker would be the first in line each time.
const (
	pullWait    = time.Second
	pullShorter = pullWait / 4
)

// pull asks for exactly as many messages as there are free places, until ctx
// ends and the last request has run out. Nothing is fetched ahead. A source that
// fails is opened again; it returns an error only for a queue that is set up
// otherwise than this node works, which no waiting mends.
func (c *Consumer) pull(ctx context.Context) error {
	var requests sync.WaitGroup
	defer requests.Wait()
	p := puller{Consumer: c, failed: make(chan error, 1)}
	retry := newBackoff()
	for {
		n := c.places.take(ctx)
		if n == 0 {
			return nil
		}
		err := p.request(ctx, n, &requests)
		if err == nil {
			retry.Reset()
			continue
		}
		c.places.put(n)
		if errors.Is(err, job.ErrMismatch) {
			return err
		}
		p.complain(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// puller is the state of pull's loop.
type puller struct {
	*Consumer
	source Source

	// failed takes the error of a request that had stood, for the loop to see.
	failed chan error

	// complained is set from a failure until a request has stood to its end.
	complained atomic.Bool
}

// request asks for n messages. It returns the error of one that failed; one that
// stands is served in the background.
func (p *puller) request(ctx context.Context, n int, requests *sync.WaitGroup) (err error) {
	select {
	case err := <-p.failed:
		p.source = nil
		return err
	default:
	}
	if p.source == nil {
		if p.source, err = p.cfg.Open(ctx); err != nil {
			p.source = nil
			return err
		}
	}
	batch, err := p.source.Fetch(n, jetstream.FetchMaxWait(pullWait-rand.N(pullShorter)))
	if err != nil {
		p.source = nil
		return err
	}
	requests.Go(func() { p.serveBatch(batch, n) })
	return nil
}

func (p *puller) serveBatch(batch jetstream.MessageBatch, n int) {
	left := n
	for msg := range batch.Messages() {
		left--
		p.slots.Go(func() {
			free := p.places.lend()
			defer free()
			p.serve(msg, free)
		})
	}
	if err := batch.Error(); err != nil && !ordinary(err) {
		select {
		case p.failed <- err:
		default:
		}
	} else {
		p.complained.Store(false)
	}
	p.places.put(left)
}

// complain says it once, until the queue is there again: a broker that is away
// must not fill the log.
func (p *puller) complain(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if p.complained.Swap(true) {
		level = slog.LevelDebug
	}
	p.cfg.Logger.Log(ctx, level, "cannot ask for slots; trying again", "queue", p.cfg.Queue, "error", err)
}

// ordinary errors end a request that nobody had a message for.
func ordinary(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages)
}

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}
