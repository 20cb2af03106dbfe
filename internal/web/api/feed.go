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

// feed hands the events of one iteration to all streams of the process, so that the broker
// sends each event once, however many browsers there are.
type feed struct {
	client *client.Client
	log    *slog.Logger
	ctx    context.Context
	ended  sync.WaitGroup

	mu      sync.Mutex
	streams map[chan client.Event]bool
	begun   bool
	at      uint64 // the sequence of the newest kept event
}

// backlog is how many events are queued for a slow stream. If the queue is full, the stream is
// closed. Its client connects again, and receives the kept events from the broker.
const backlog = 256

func newFeed(ctx context.Context, c *client.Client, log *slog.Logger) *feed {
	return &feed{client: c, log: log, ctx: ctx, streams: map[chan client.Event]bool{}}
}

// join returns a channel of events, and the sequence after which its kept events begin. The
// channel is closed if its reader is too slow.
func (f *feed) join(ctx context.Context) (told chan client.Event, leave func(), at uint64, err error) {
	if err := f.begin(ctx); err != nil {
		return nil, nil, 0, err
	}
	told = make(chan client.Event, backlog)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[told] = true
	return told, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, told)
	}, f.at, nil
}

// Subscribe returns a channel of all events of the process, and a function that ends it. The channel
// is closed if its reader is too slow.
func (a *API) Subscribe(ctx context.Context) (events <-chan client.Event, leave func(), err error) {
	told, leave, _, err := a.feed.join(ctx)
	return told, leave, err
}

// begin starts the iteration with the first stream. It lasts as long as the process.
func (f *feed) begin(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun {
		return nil
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	at, err := f.client.LastSequence(ctx)
	if err != nil {
		return err
	}
	f.at, f.begun = at, true
	f.ended.Go(f.run)
	return nil
}

// run iterates until the process ends. If the iteration fails, run starts another one after the
// last kept event.
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
				f.log.Warn("events stopped; they go on in a second", "error", err)
				break
			}
			f.tell(e)
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(again):
		}
	}
}

func (f *feed) tell(e client.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = max(f.at, e.Sequence)
	for told := range f.streams {
		select {
		case told <- e:
		default:
			delete(f.streams, told)
			close(told)
		}
	}
}

func (f *feed) wait() { f.ended.Wait() }
