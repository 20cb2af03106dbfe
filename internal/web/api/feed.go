package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// feed sends the events of one subscription to all streams of the process, so that the broker
// sends each event once, however many browsers there are.
type feed struct {
	client *client.Client
	log    *slog.Logger
	ctx    context.Context
	ended  sync.WaitGroup

	mu      sync.Mutex
	streams map[chan client.Event]bool
	started bool
	at      uint64 // the sequence of the newest kept event that the feed has sent
}

// backlog is how many events are queued for a slow stream. If the queue is full, the stream is
// closed. Its client connects again, and receives the kept events from the broker.
const backlog = 256

func newFeed(ctx context.Context, c *client.Client, log *slog.Logger) *feed {
	return &feed{client: c, log: log, ctx: ctx, streams: map[chan client.Event]bool{}}
}

// join returns a channel of events, and the sequence after which its kept events begin. The
// channel is closed if its reader is too slow.
func (f *feed) join(ctx context.Context) (events <-chan client.Event, leave func(), at uint64, err error) {
	if err := f.start(ctx); err != nil {
		return nil, nil, 0, err
	}
	stream := make(chan client.Event, backlog)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[stream] = true
	return stream, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, stream)
	}, f.at, nil
}

// Subscribe returns a channel of all events of the process, and a function that ends it. The
// channel is closed if its reader is too slow.
func (a *API) Subscribe(ctx context.Context) (events <-chan client.Event, leave func(), err error) {
	events, leave, _, err = a.feed.join(ctx)
	return events, leave, err
}

// start subscribes when the first stream joins. The subscription lasts as long as the API.
func (f *feed) start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started {
		return nil
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := f.client.LastSequence(ctx)
	if err != nil {
		return err
	}
	f.at, f.started = at, true
	f.ended.Go(f.run)
	return nil
}

// run sends events until the API is closed. If the subscription fails, run subscribes again, and
// continues after the last kept event.
func (f *feed) run() {
	const again = time.Second
	for f.ctx.Err() == nil {
		f.mu.Lock()
		at := f.at
		f.mu.Unlock()
		for e, err := range f.client.Events(f.ctx, client.EventFilter{After: &at}) {
			if errors.Is(err, job.ErrInvalid) || errors.Is(err, job.ErrVersion) {
				continue // one event cannot be read
			}
			if err != nil {
				f.log.Warn("event subscription failed; subscribing again", "delay", again, "error", err)
				break
			}
			f.send(e)
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(again):
		}
	}
}

// send gives all streams an event.
func (f *feed) send(e client.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = max(f.at, e.Sequence)
	for stream := range f.streams {
		select {
		case stream <- e:
		default:
			delete(f.streams, stream)
			close(stream)
		}
	}
}
