package shell

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

const (
	// beat is the shortest time between two messages that say what has changed. Events in between
	// are summed up. All browsers ask after the same message, so they share what is read for them:
	// the process reads each page once a beat, however many slots run.
	beat = 2 * time.Second

	// gather is how long the first event after a quiet time waits for those that follow it.
	gather = 200 * time.Millisecond

	// probing is how often live asks the broker for an answer, and the timeout of the question.
	probing = time.Second

	// again is how often live subscribes anew after a subscription has ended. It is also how long
	// live listens at most after the last stream has ended.
	again = time.Second

	// maxBrowsers bounds the streams of a process. A browser that gets none asks again from time
	// to time.
	maxBrowsers = 1000

	// mostNamed bounds the jobs in a message. If there are more, all pages are concerned.
	mostNamed = 400

	// silence is how long a stream has no message at most, so that proxies keep it open.
	silence = 15 * time.Second

	liveWrite = 10 * time.Second
)

// live tells browsers what has changed: it sums up the events of a beat in one message, which all
// streams share. The first event after a quiet time does not wait for the beat. live listens to
// events only while there are streams. It also says whether the broker answers.
type live struct {
	cfg     Config
	log     *slog.Logger
	ctx     context.Context
	ended   sync.WaitGroup
	mu      sync.Mutex
	streams map[chan []byte]bool
	running bool
	away    bool

	// id is that of the process: each stream begins with it.
	id string

	// at is when the last message was sent: what was read before is out of date.
	at time.Time
}

func newLive(ctx context.Context, log *slog.Logger, cfg Config) *live {
	return &live{cfg: cfg, log: log, ctx: ctx, id: rand.Text(), streams: map[chan []byte]bool{}}
}

func (l *live) wait() { l.ended.Wait() }

// touched sums up events: which jobs, and which kinds of events.
type touched struct {
	Jobs  []string        `json:"jobs,omitempty"`
	Kinds []job.EventKind `json:"kinds"`
	All   bool            `json:"all,omitempty"` // too many jobs to name
}

func (t *touched) add(e client.Event) {
	if !slices.Contains(t.Kinds, e.Kind) {
		t.Kinds = append(t.Kinds, e.Kind)
	}
	switch {
	case e.Job == "" || t.All || slices.Contains(t.Jobs, e.Job):
	case len(t.Jobs) == mostNamed:
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

// join adds a stream, and starts to listen with the first one.
func (l *live) join() (messages chan []byte, away, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.streams) >= maxBrowsers || l.ctx.Err() != nil {
		return nil, false, false
	}
	messages = make(chan []byte, 4)
	l.streams[messages] = true
	if !l.running {
		l.running = true
		l.ended.Go(l.listen)
	}
	return messages, l.away, true
}

func (l *live) leave(messages chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, messages)
}

// send gives all streams a message. One that is too slow ends: its browser connects again, and
// refreshes everything.
func (l *live) send(m []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Now()
	for s := range l.streams {
		select {
		case s <- m:
		default:
			delete(l.streams, s)
			close(s)
		}
	}
}

// idle reports that there is no stream, and ends the listening then.
func (l *live) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running = len(l.streams) > 0; !l.running {
		l.away = false // nothing asks the broker any more
	}
	return !l.running
}

// news returns when the last message was sent. Zero: none was.
func (l *live) news() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
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
	var t touched
	var due <-chan time.Time // nil: there is nothing to send
	var sent time.Time
	await := func() {
		if due == nil {
			due = time.After(max(gather, beat-time.Since(sent)))
		}
	}
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		if events == nil {
			told, left, err := l.cfg.Subscribe(ctx)
			if err == nil {
				events, leave = told, left
			}
		}
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events, t.All = nil, true // events were lost
				leave()
				leave = func() {}
			} else {
				t.add(e)
			}
			await()
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

// probe asks the broker now and then whether it is there.
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

// serve answers a browser with a stream.
func (l *live) serve(w http.ResponseWriter, r *http.Request) {
	messages, away, ok := l.join()
	if !ok {
		problem.Write(w, fault.Unavailable, fmt.Sprintf("this process serves %d pages already", maxBrowsers))
		return
	}
	defer l.leave(messages)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold messages back
	to := http.NewResponseController(w)
	write := func(m []byte) bool {
		_ = to.SetWriteDeadline(time.Now().Add(liveWrite)) // not all servers have deadlines
		if _, err := w.Write(m); err != nil {
			return false
		}
		return to.Flush() == nil
	}
	if !write(append([]byte("retry: 1000\nid: "+l.id+"\n"), message("broker", map[string]bool{"away": away})...)) {
		return
	}
	keep := time.NewTicker(silence)
	defer keep.Stop()
	for {
		m := []byte(": still here\n\n")
		ok := true
		select {
		case <-r.Context().Done():
			return
		case <-l.ctx.Done():
			return
		case m, ok = <-messages:
		case <-keep.C:
		}
		if !ok || !write(m) {
			return
		}
	}
}
