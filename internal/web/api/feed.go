package api

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// feed sends the events of one subscription to all streams of the process, so that the broker
// sends each event once, however many browsers there are. It remembers the newest events that the
// broker does not keep, such as successes.
type feed struct {
	client *client.Client
	log    *slog.Logger
	ctx    context.Context
	ended  sync.WaitGroup

	mu      sync.Mutex
	streams map[chan client.Event]bool
	since   time.Time      // when the subscription began; zero: it has not
	at      uint64         // the sequence of the last kept event that the feed has sent
	unkept  []client.Event // the newest events that the broker does not keep, at most maxUnkept
}

// backlog is how many events are queued for a slow stream. If the queue is full, the stream is
// closed. Its client connects again, and receives the kept events from the broker.
const backlog = 256

const maxUnkept = 300

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

// Subscribe returns a channel of all events that this process receives, and a function that ends the
// subscription. The channel is closed if its reader is too slow.
func (a *API) Subscribe(ctx context.Context) (events <-chan client.Event, leave func(), err error) {
	events, leave, _, err = a.feed.join(ctx)
	return events, leave, err
}

// Recent returns the newest events that the broker does not keep, oldest first, and since when this
// process receives them. It leaves out progress and output, which are too frequent.
func (a *API) Recent(ctx context.Context) (unkept []client.Event, since time.Time, err error) {
	f := a.feed
	if err := f.start(ctx); err != nil {
		return nil, time.Time{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.unkept), f.since, nil
}

// start subscribes when the first stream joins, or Recent is called. The subscription lasts as long as the API.
func (f *feed) start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.since.IsZero() {
		return nil
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := f.client.LastSequence(ctx)
	if err != nil {
		return err
	}
	f.at, f.since = at, time.Now()
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
			if exchange.IsUnreadable(err) {
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

// send passes an event to all streams.
func (f *feed) send(e client.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Sequence > 0 {
		f.at = e.Sequence
	}
	if e.Sequence == 0 && e.Kind != job.EventOutput && e.Kind != job.EventProgress {
		f.unkept = codec.Last(append(f.unkept, e), maxUnkept)
	}
	for stream := range f.streams {
		select {
		case stream <- e:
		default:
			delete(f.streams, stream)
			close(stream)
		}
	}
}
