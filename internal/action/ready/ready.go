package ready

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/action"
)

const (
	// interval is between an answer, or its absence, and the next question.
	interval = time.Second

	// patience is how long an answer may take.
	patience = 2 * time.Second

	// enough is how many yes in a row mend a no.
	enough = 2
)

// Need is a service that a queue's jobs cannot do without.
type Need struct {
	Queue string
	URL   *url.URL

	// Shown is the URL without what is secret, for the log.
	Shown string
}

// Services asks all services of a process. It is safe for concurrent use.
type Services struct {
	transport *http.Transport
	log       *slog.Logger
	interval  time.Duration

	mu      sync.Mutex
	asked   map[string]*service // by URL
	queues  map[string]*queue
	changed chan struct{} // has one element after Set
}

// service is one URL and what it answered.
type service struct {
	url   *url.URL
	shown string
	ready bool
	why   error // it is not ready; nil before the first answer
	yes   int   // in a row
}

type queue struct {
	needs []*service
	open  chan struct{} // closed while slots may be taken
	// refused is set from the moment that the log said why until it said that it
	// is over.
	refused bool
}

// New returns what asks nobody, see Set and Run.
func New(log *slog.Logger) *Services {
	return &Services{
		// Of its own: a question must not wait for a connection behind work.
		transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 4 * time.Second},
		log:       log, interval: interval, asked: map[string]*service{}, queues: map[string]*queue{}, changed: make(chan struct{}, 1),
	}
}

// Set replaces what is needed. What is known of a service stays known.
func (s *Services) Set(needs []Need) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, before := s.asked, s.queues
	s.asked, s.queues = map[string]*service{}, map[string]*queue{}
	for _, n := range needs {
		key := n.URL.String()
		if s.asked[key] == nil {
			s.asked[key] = known[key]
		}
		if s.asked[key] == nil {
			s.asked[key] = &service{url: n.URL, shown: n.Shown, yes: enough - 1}
		}
		q := s.queues[n.Queue]
		if q == nil {
			q = &queue{open: make(chan struct{})}
			if old := before[n.Queue]; old != nil {
				q.open, q.refused = old.open, old.refused
			}
			s.queues[n.Queue] = q
		}
		q.needs = append(q.needs, s.asked[key])
	}
	// Who waits for a queue that needs nothing any more must hear of it.
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

// Ready returns a channel that is closed, or will be, when slots of the queue may
// be taken. Ask again each time: it holds only until a service says no.
func (s *Services) Ready(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		return q.open
	}
	return always
}

// Run asks until ctx ends.
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

// round asks every service once, all at the same time.
func (s *Services) round(ctx context.Context) {
	s.mu.Lock()
	services := make([]*service, 0, len(s.asked))
	for _, svc := range s.asked {
		services = append(services, svc)
	}
	s.mu.Unlock()
	var answers sync.WaitGroup
	for _, svc := range services {
		answers.Go(func() {
			err := s.ask(ctx, svc.url)
			if ctx.Err() == nil {
				s.note(svc, err)
			}
		})
	}
	answers.Wait()
}

// ask returns nil for a yes. Its errors do not show the URL.
func (s *Services) ask(ctx context.Context, u *url.URL) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	req.URL = u
	req.Header.Set("User-Agent", "cronce")
	if u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return action.Hidden(action.Reason(ctx, err), action.URLSecrets(u))
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // for the connection's sake
	return nil
}

// note takes an answer down, and tells the queues.
func (s *Services) note(svc *service, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc.yes++
	if err != nil {
		svc.yes = 0
	}
	svc.why, svc.ready = err, svc.yes >= enough
	s.judgeAll()
}

// judgeAll and judge open and close queues by their services; s.mu is held.
func (s *Services) judgeAll() {
	for name, q := range s.queues {
		s.judge(name, q)
	}
}

func (s *Services) judge(name string, q *queue) {
	ready := true
	for _, svc := range q.needs {
		ready = ready && svc.ready
		if svc.why != nil && !q.refused {
			q.refused = true
			s.log.Warn("a service is not ready: no slots of its queue are taken here", "queue", name, "ready", svc.shown, "error", svc.why)
		}
	}
	switch open := isClosed(q.open); {
	case ready && !open:
		close(q.open)
		if q.refused {
			s.log.Info("services are ready: slots are taken again", "queue", name)
		}
		q.refused = false
	case !ready && open:
		q.open = make(chan struct{})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
