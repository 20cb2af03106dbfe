package ready

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/action"
)

const (
	// interval is the pause between the end of a check and the next one.
	interval = time.Second

	// timeout bounds a check.
	timeout = 2 * time.Second

	// goodInARow is how many good checks in a row make a service ready again.
	goodInARow = 2
)

// Need is a service that jobs of a queue need.
type Need struct {
	Queue string
	URL   *url.URL

	// Shown is the URL without its secret parts, for the log.
	Shown string
}

// Services checks all services of a process. It is safe for concurrent use.
type Services struct {
	transport *http.Transport
	log       *slog.Logger
	interval  time.Duration

	mu       sync.Mutex
	services map[string]*service // by URL
	queues   map[string]*queue
	changed  chan struct{} // has one element after Set
}

// service is one URL and the result of its last checks.
type service struct {
	url   *url.URL
	shown string
	ready bool
	why   error // why it is not ready; nil before the first answer
	good  int   // consecutive good checks
}

type queue struct {
	needs []*service
	open  chan struct{} // closed while slots may be taken
	// logged is true from the log message "service not ready" until the message "services ready".
	logged bool
}

// New returns Services without any needs; see Set and Run.
func New(log *slog.Logger) *Services {
	return &Services{
		// Checks do not share connections with the requests of jobs.
		transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 4 * time.Second},
		log:       log, interval: interval, services: map[string]*service{}, queues: map[string]*queue{}, changed: make(chan struct{}, 1),
	}
}

// Set replaces the needs. The state of known services is kept.
func (s *Services) Set(needs []Need) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, before := s.services, s.queues
	s.services, s.queues = map[string]*service{}, map[string]*queue{}
	for _, n := range needs {
		key := n.URL.String()
		if s.services[key] == nil {
			s.services[key] = known[key]
		}
		if s.services[key] == nil {
			s.services[key] = &service{url: n.URL, shown: n.Shown, good: goodInARow - 1} // one good check is enough at first
		}
		q := s.queues[n.Queue]
		if q == nil {
			q = &queue{open: make(chan struct{})}
			if old := before[n.Queue]; old != nil {
				q.open, q.logged = old.open, old.logged
			}
			s.queues[n.Queue] = q
		}
		q.needs = append(q.needs, s.services[key])
	}
	// A queue without needs opens, and wakes the workers that wait for it.
	for name, q := range before {
		if s.queues[name] == nil {
			q.needs = nil
			s.judge(name, q)
		}
	}
	s.judgeAll()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// Ready returns a channel that is closed when slots of the queue may be taken. Call it each
// time, because the answer changes when a service fails.
func (s *Services) Ready(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		return q.open
	}
	return always
}

// Run checks the services until ctx ends.
func (s *Services) Run(ctx context.Context) {
	defer s.transport.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-time.After(s.interval):
		}
		s.round(ctx)
	}
}

// round checks all services once, at the same time.
func (s *Services) round(ctx context.Context) {
	s.mu.Lock()
	services := slices.Collect(maps.Values(s.services))
	s.mu.Unlock()
	var answers sync.WaitGroup
	for _, svc := range services {
		answers.Go(func() {
			err := s.check(ctx, svc.url)
			if ctx.Err() == nil {
				s.note(svc, err)
			}
		})
	}
	answers.Wait()
}

// check returns nil if the service is ready. Its errors do not show the URL.
func (s *Services) check(ctx context.Context, u *url.URL) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	req, err := action.NewRequest(ctx, http.MethodGet, u, nil)
	if err != nil {
		return err
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return action.Hidden(action.Reason(ctx, err), action.URLSecrets(u))
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	return nil
}

// note records the result of a check and opens or closes the queues.
func (s *Services) note(svc *service, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc.good++
	if err != nil {
		svc.good = 0
	}
	svc.why, svc.ready = err, svc.good >= goodInARow
	s.judgeAll()
}

// judgeAll and judge open and close queues by the state of their services. s.mu is held.
func (s *Services) judgeAll() {
	for name, q := range s.queues {
		s.judge(name, q)
	}
}

func (s *Services) judge(name string, q *queue) {
	ready := true
	for _, svc := range q.needs {
		ready = ready && svc.ready
		if svc.why != nil && !q.logged {
			q.logged = true
			s.log.Warn("service not ready: this node takes no slots of the queue", "queue", name, "ready", svc.shown, "error", svc.why)
		}
	}
	select {
	case <-q.open:
		if !ready {
			q.open = make(chan struct{})
		}
	default:
		if !ready {
			return
		}
		close(q.open)
		if q.logged {
			s.log.Info("services ready: this node takes slots again", "queue", name)
		}
		q.logged = false
	}
}
