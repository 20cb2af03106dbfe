package shell

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/internal/web/stream"
	"github.com/cronce-io/cronce/job"
)

const (
	// beat is the shortest time between two messages that say what has changed. Events in between
	// are summed up. All browsers get the same message and refresh their pages, so they share what is
	// read for them: the process reads each page once a beat, however many slots run.
	beat = 2 * time.Second

	// gather is how long the first event after a quiet time waits for those that follow it.
	gather = 200 * time.Millisecond

	// probing is how often live asks the broker for an answer, and the timeout of the question.
	probing = time.Second

	// check is how often live checks whether there are streams left, and whether it must subscribe
	// again.
	check = time.Second

	// boardAge is more than the age of what a page shows when it is read: half a second, see Site.board in package
	// pages.
	boardAge = time.Second

	// maxBrowsers bounds the streams of a process. A browser that gets none tries again from time
	// to time.
	maxBrowsers = 1000

	// maxNamed bounds the jobs in a message. If there are more, every page refreshes itself.
	maxNamed = 400
)

// live sends browsers what has changed. It sums up the events of a beat in one message, which all
// streams share. The first event after a quiet time does not wait for the beat. live subscribes to
// events only while there are streams. It also sends whether the broker answers.
type live struct {
	cfg     Config
	ctx     context.Context
	ended   sync.WaitGroup
	mu      sync.Mutex
	streams map[chan []byte]bool
	running bool
	away    bool

	// id identifies the process. Each stream begins with it.
	id string

	// sent is when the last message was sent. What was read before is out of date.
	sent time.Time
}

func newLive(ctx context.Context, cfg Config) *live {
	return &live{cfg: cfg, ctx: ctx, id: rand.Text(), streams: map[chan []byte]bool{}}
}

// touched sums up events: which jobs, and which kinds of events.
type touched struct {
	Jobs  []string        `json:"jobs,omitempty"`
	Kinds []job.EventKind `json:"kinds,omitempty"`
	All   bool            `json:"all,omitempty"` // too many jobs to name, or events were lost
}

func (t *touched) add(e client.Event) {
	if !slices.Contains(t.Kinds, e.Kind) {
		t.Kinds = append(t.Kinds, e.Kind)
	}
	switch {
	case e.Job == "" || t.All || slices.Contains(t.Jobs, e.Job):
	case len(t.Jobs) == maxNamed:
		t.Jobs, t.All = nil, true
	default:
		t.Jobs = append(t.Jobs, e.Job)
	}
}

func message(event string, data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		return nil // names and kinds can be encoded
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, text)
}

// join adds a stream. The first one starts listen. sent is when the last message before was sent.
func (l *live) join() (messages chan []byte, sent time.Time, away, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.streams) >= maxBrowsers || l.ctx.Err() != nil {
		return nil, time.Time{}, false, false
	}
	messages = make(chan []byte, 4)
	l.streams[messages] = true
	if !l.running {
		l.running = true
		l.ended.Go(l.listen)
	}
	return messages, l.sent, l.away, true
}

func (l *live) leave(messages chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, messages)
}

// send passes a message to all streams. It closes a stream that is too slow: its browser connects
// again, and refreshes everything.
func (l *live) send(m []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = time.Now()
	for s := range l.streams {
		select {
		case s <- m:
		default:
			delete(l.streams, s)
			close(s)
		}
	}
}

// idle reports whether there is no stream. Then it marks live as not running, and listen must end.
func (l *live) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running = len(l.streams) > 0; !l.running {
		l.away = false // probe ends too, and will not reset it
	}
	return !l.running
}

// news returns when the last message was sent. Zero: none was.
func (l *live) news() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// isAway reports whether the broker is known to be away.
func (l *live) isAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

// listen sums up events and sends them, until there is no stream left.
func (l *live) listen() {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var probes sync.WaitGroup
	defer probes.Wait()
	probes.Go(func() { l.probe(ctx) })
	defer cancel()
	var events <-chan client.Event
	leave := func() {}
	defer func() { leave() }()
	lost := true // events before the subscription are unknown, and a page was read before it
	var t touched
	var due <-chan time.Time // nil: there is nothing to send
	var sent time.Time
	tick := time.NewTicker(check)
	defer tick.Stop()
	for {
		if events == nil {
			if joined, left, err := l.cfg.Subscribe(ctx); err == nil {
				events, leave = joined, left
				t.All, lost = t.All || lost, false
			} else {
				lost = true
			}
		}
		if due == nil && (t.All || len(t.Kinds) > 0) {
			due = time.After(max(gather, beat-time.Since(sent)))
		}
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if ok {
				t.add(e)
				break
			}
			events, lost = nil, true
			leave()
			leave = func() {}
		case <-due:
			l.send(message("touched", t))
			t, due, sent = touched{}, nil, time.Now()
		case <-tick.C:
			if l.idle() {
				return
			}
		}
	}
}

// probe checks regularly whether the broker answers, and sends the browsers each change.
func (l *live) probe(ctx context.Context) {
	tick := time.NewTicker(probing)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, probing)
		_, err := l.cfg.Client.LastSequence(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		away := err != nil && fault.Of(err) == fault.Unknown
		l.mu.Lock()
		changed := l.running && away != l.away
		l.away = l.running && away
		l.mu.Unlock()
		if changed {
			l.send(message("broker", map[string]bool{"away": away}))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// mayBeOld reports whether a message was sent after the browser's page was read, which the browser has
// not received. sent is when the last one was sent.
func (l *live) mayBeOld(r *http.Request, sent time.Time) bool {
	query := r.URL.Query()
	read, err := time.Parse(time.RFC3339, query.Get("read"))
	return err != nil || query.Get("process") != l.id || sent.After(read.Add(-boardAge))
}

// serve answers a browser with a stream.
func (l *live) serve(w http.ResponseWriter, r *http.Request) {
	messages, sent, away, ok := l.join()
	if !ok {
		problem.Write(w, fault.Unavailable, fmt.Sprintf("this process serves %d pages already", maxBrowsers))
		return
	}
	defer l.leave(messages)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	to := stream.New(w, r, "text/event-stream")
	if _, err := fmt.Fprintf(to, "retry: 1000\nid: %s\n%s", l.id, message("broker", map[string]bool{"away": away})); err != nil {
		return // the browser is gone
	}
	if l.mayBeOld(r, sent) {
		if _, err := to.Write(message("touched", touched{All: true})); err != nil {
			return
		}
	}
	stream.Follow(ctx, to, messages, ": still here\n\n", func(m []byte) error { // the channel is closed if the browser is too slow
		_, err := to.Write(m)
		return err
	})
}
