package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullWait is how long one request for messages stands. It is short because a
// request cannot be taken back: a worker that stops still has to receive, and
// give back, what comes until then; and one that is frozen swallows messages for
// no longer.
const pullWait = time.Second

// pull asks for exactly as many messages as there are free places, until ctx
// ends and the last request has run out. Nothing is fetched ahead.
func (c *Consumer) pull(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	var source Source
	retry := newBackoff()
	for {
		n := c.places.take(ctx)
		if n == 0 {
			return
		}
		var err error
		if source == nil {
			source, err = c.cfg.Open(ctx)
		}
		if err == nil {
			err = c.request(source, n, &requests)
		}
		if err == nil {
			retry.Reset()
			continue
		}
		c.places.put(n)
		source = nil
		c.logPull(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// request asks for n messages. It returns the error of a request that failed at
// once; one that stands is served in the background.
func (c *Consumer) request(source Source, n int, requests *sync.WaitGroup) error {
	batch, err := source.Fetch(n, jetstream.FetchMaxWait(pullWait))
	if err != nil {
		return err
	}
	requests.Go(func() {
		left := n
		for msg := range batch.Messages() {
			left--
			c.slots.Go(func() {
				defer c.places.put(1)
				c.serve(msg)
			})
		}
		if err := batch.Error(); err != nil && !ordinary(err) {
			// Places come back with a delay, so that a source that is gone is
			// not asked in a tight loop.
			c.logPull(c.ended, err)
			select {
			case <-c.ended.Done():
			case <-time.After(pullWait / 4):
			}
		}
		c.places.put(left)
	})
	return nil
}

// ordinary errors end a request that nobody had a message for.
func ordinary(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages)
}

func (c *Consumer) logPull(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.cfg.Logger.Warn("cannot ask for slots; trying again", "queue", c.cfg.Queue, "error", err)
	}
}

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}
