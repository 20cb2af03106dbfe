package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/internal/web/stream"
	"github.com/cronce-io/cronce/job"
)

const eventStream = "text/event-stream"

// maxStreams bounds the event streams of a process.
const maxStreams = 100

type eventsIn struct {
	Job  string          `query:"job" doc:"only of this job"`
	Kind []job.EventKind `query:"kind" doc:"only of these kinds, like failed or ordered: separated by commas, or repeated"`
	Last string          `header:"Last-Event-ID" doc:"the id of the last event that you received: the stream continues after it, with the kinds that are kept. 0: it begins with the oldest kept event"`
}

func eventOperations() []operation {
	return []operation{
		rawOperation("streamEvents", http.MethodGet, "/events", "What happens, as server-sent events", nil, serveEvents).
			says("Each event has its kind as event and its JSON as data, as cronce watch -o json prints it. Events of the kinds that are kept have an id: " +
				"a client that connects again, also to another replica, sends it as Last-Event-ID and misses none of them. A process serves 100 streams at most.").
			returns(answer{status: http.StatusOK, what: "The stream"}).curl("-N --max-time 2").asks("kind=failed,ordered"),
	}
}

// serveEvents subscribes before it reads the events that the client has missed, so that it misses
// none in between.
func serveEvents(a *API, w http.ResponseWriter, r *http.Request, in eventsIn) error {
	filter, err := in.filter()
	if err != nil {
		return err
	}
	if !a.streams.TryAcquire(1) {
		return problem.New(fault.Unavailable, fmt.Sprintf("this process serves %d event streams already: close one, or ask another replica", maxStreams))
	}
	defer a.streams.Release(1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.closing, cancel)()
	events, leave, at, err := a.feed.join(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s := &sse{to: stream.New(w, r, eventStream), filter: filter, sent: at, fed: at}
	if filter.After != nil {
		s.sent = *filter.After
	}
	// With this id, a client that loses the connection before the first event misses none either.
	if _, err := fmt.Fprintf(s.to, "retry: 2000\nid: %d\n\n", s.sent); err != nil {
		return nil // the client is gone
	}
	if s.sent != at && r.Method != http.MethodHead {
		if s.catchUp(ctx, a.cfg.Client, at) != nil {
			return nil // the client connects again, and goes on from what it has
		}
	}
	stream.Follow(ctx, s.to, events, ": ping\n\n", s.forward) // the channel is closed if the client is too slow
	return nil
}

// filter checks the parameters before the stream begins.
func (in eventsIn) filter() (client.EventFilter, error) {
	f := client.EventFilter{Job: in.Job, Kinds: in.Kind}
	for _, kind := range in.Kind {
		if !known(kind) {
			return f, wrong("kind", "invalid kind %q: want one of %v", codec.Clip(string(kind)), kinds)
		}
	}
	if in.Last != "" {
		n, err := strconv.ParseUint(in.Last, 10, 64)
		if err != nil {
			return f, wrong("Last-Event-ID", "invalid Last-Event-ID %q: want the id of an event", codec.Clip(in.Last))
		}
		f.After = &n
	}
	return f, nil
}

var kinds = exchange.Kinds()

func known(kind job.EventKind) bool { return slices.Contains(kinds, kind) }

// sse writes one stream.
type sse struct {
	to     *stream.Writer
	filter client.EventFilter
	sent   uint64 // the sequence of the last kept event that was sent, or after which the stream begins
	fed    uint64 // the sequence of the last kept event that came from the feed
}

// forward sends an event from the feed. If the broker's stream is created anew, or restored from an
// older copy, sequences begin again; forward then counts no event as sent.
func (s *sse) forward(e client.Event) error {
	if e.Sequence > 0 {
		if e.Sequence <= s.fed {
			s.sent = 0
		}
		s.fed = e.Sequence
	}
	return s.send(e)
}

// send writes an event that the filter selects, unless it was sent before.
func (s *sse) send(e client.Event) error {
	if e.Sequence > 0 {
		if e.Sequence <= s.sent {
			return nil
		}
		s.sent = e.Sequence
	}
	if !s.takes(e) {
		return nil
	}
	data, err := json.Marshal(e.Event)
	if err != nil {
		return nil // cannot happen: it was decoded from JSON
	}
	var b bytes.Buffer
	if e.Sequence > 0 {
		fmt.Fprintf(&b, "id: %d\n", e.Sequence)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Kind, data)
	_, err = s.to.Write(b.Bytes())
	return err
}

func (s *sse) takes(e client.Event) bool {
	if s.filter.Job != "" && e.Job != s.filter.Job {
		return false
	}
	if len(s.filter.Kinds) == 0 {
		return known(e.Kind) // the kind is written into the stream, so it must be a known one
	}
	return slices.Contains(s.filter.Kinds, e.Kind)
}

// eventSource is the part of client.Client that catchUp needs.
type eventSource interface {
	LastSequence(ctx context.Context) (uint64, error)
	Events(ctx context.Context, f client.EventFilter) iter.Seq2[client.Event, error]
}

// catchUp writes the kept events up to sequence at. The later ones come from the feed. If the
// broker's stream was created anew, or restored from an older copy, since the client received its last
// event, catchUp begins with the first event. If the broker no longer stores event at, catchUp ends
// when no event has come for quiet. The time that the client takes to read does not count.
func (s *sse) catchUp(ctx context.Context, c eventSource, at uint64) error {
	const quiet = 5 * time.Second
	within := func(ctx context.Context) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, quiet)
		defer cancel()
		return c.LastSequence(ctx)
	}
	last, err := within(ctx)
	if err != nil {
		return err
	}
	after := s.sent
	if after > last {
		after, s.sent = 0, 0
		if _, err := io.WriteString(s.to, "id: 0\n\n"); err != nil {
			return err
		}
	}
	if at = min(at, last); after >= at {
		return nil
	}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(quiet, cancel)
	defer timer.Stop()
	for e, err := range c.Events(reading, client.EventFilter{After: &after}) {
		switch {
		case exchange.IsUnreadable(err) || err == nil && e.Sequence == 0:
			continue
		case err != nil:
			return err
		case !timer.Stop():
			return context.DeadlineExceeded // the events after this one would be missing
		}
		if err := s.send(e); err != nil {
			return err
		}
		if e.Sequence >= at {
			return nil
		}
		timer.Reset(quiet)
	}
	_, err = within(ctx) // without a broker, events may have been missed
	return err
}
