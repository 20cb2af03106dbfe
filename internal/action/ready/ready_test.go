package ready_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/action/ready"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service answers each check with status, and counts the checks.
type service struct {
	*httptest.Server
	status atomic.Int32
	asked  atomic.Int32
}

func newService(t *testing.T, status int32) *service {
	t.Helper()
	s := &service{}
	s.status.Store(status)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if r.Method != http.MethodGet || r.URL.Path == "/elsewhere" {
			t.Errorf("asked with %s %s", r.Method, r.URL)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(int(s.status.Load()))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) need(t *testing.T, queue string) ready.Need {
	t.Helper()
	return need(t, queue, strings.Replace(s.URL, "//", "//ada:word@", 1)+"/ready")
}

func need(t *testing.T, queue, rawURL string) ready.Need {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return ready.Need{Queue: queue, URL: u, Shown: u.Host}
}

// askedAgain waits until two more checks were answered.
func (s *service) askedAgain(t *testing.T) {
	t.Helper()
	n := s.asked.Load()
	natstest.Eventually(t, "more questions", func() bool { return s.asked.Load() > n+2 })
}

// text is what was logged.
type text struct {
	mu sync.Mutex
	strings.Builder
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Builder.Write(p)
}

func (w *text) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.String()
}

// run checks the services until the test ends.
func run(t *testing.T, needs ...ready.Need) (*ready.Services, *text) {
	t.Helper()
	log := &text{}
	s := ready.New(slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), nil)))
	s.Every(5 * time.Millisecond)
	s.Set(needs)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); asking.Wait() })
	return s, log
}

// This test uses the default interval. The others use a shorter one.
func TestServicesAreAskedOnceASecond(t *testing.T) {
	t.Parallel()
	asked := make(chan time.Time, 100)
	svc := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- time.Now() }))
	t.Cleanup(svc.Close)
	s := ready.New(slog.New(slog.DiscardHandler))
	s.Set([]ready.Need{need(t, "q", svc.URL)})
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); asking.Wait() })
	first, second := <-asked, <-asked
	if between := second.Sub(first); between < 900*time.Millisecond {
		t.Errorf("asked again after %v, want a second", between)
	}
}

func isOpen(s *ready.Services, queue string) bool {
	select {
	case <-s.Ready(queue):
		return true
	default:
		return false
	}
}

func becomes(t *testing.T, s *ready.Services, queue string, open bool) {
	t.Helper()
	natstest.Eventually(t, "the queue to open or close", func() bool { return isOpen(s, queue) == open })
}

func TestAQueueIsOpenWhileAllItsServicesAreReady(t *testing.T) {
	t.Parallel()
	a, b := newService(t, 200), newService(t, 503)
	s, log := run(t, a.need(t, "slow"), b.need(t, "slow"), a.need(t, "fast"))
	becomes(t, s, "fast", true)
	if !isOpen(s, "other") {
		t.Error("a queue that needs nothing is closed")
	}
	b.askedAgain(t)
	if isOpen(s, "slow") {
		t.Error("slow is open although a service of it is not ready")
	}
	waiting := s.Ready("slow")
	b.status.Store(204)
	<-waiting
	becomes(t, s, "slow", true)
	for _, status := range []int32{404, 302, 500} {
		b.status.Store(status)
		becomes(t, s, "slow", false)
		b.status.Store(200)
		becomes(t, s, "slow", true)
	}
	if !isOpen(s, "fast") {
		t.Error("fast has waited for a service that it does not need")
	}
	a.Close()
	becomes(t, s, "fast", false)
	said := log.said()
	for _, want := range []string{"queue=slow", "status 503 Service Unavailable", "this node takes slots again", "queue=fast", "connection refused"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log does not say %q:\n%s", want, said)
		}
	}
	if n := strings.Count(said, "not ready"); n != 6 { // slow 4 times, then both
		t.Errorf("said %d times that a service is not ready, want 6:\n%s", n, said)
	}
	if strings.Contains(said, "word") {
		t.Errorf("the log shows the password:\n%s", said)
	}
}

// A service whose checks succeed and fail in turn is not ready.
func TestAServiceThatFailedIsReadyOnlyAfterTwoGoodChecks(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	turns := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(turns.Close)
	s, _ := run(t, need(t, "q", turns.URL))
	opened := s.Ready("q")
	natstest.Eventually(t, "twenty questions", func() bool { return asked.Load() > 20 })
	select {
	case <-opened:
		t.Error("it has opened")
	default:
	}
}

func TestAServiceThatDoesNotAnswerIsNotReadyAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(mute.Close)
	good := newService(t, 200)
	s, log := run(t, need(t, "mute", mute.URL), good.need(t, "good"))
	becomes(t, s, "good", true)
	natstest.Eventually(t, "patience to end", func() bool { return strings.Contains(log.said(), "no answer within 2s") })
	if isOpen(s, "mute") {
		t.Error("it has opened")
	}
}

func TestAnotherFileChangesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	good, bad := newService(t, 200), newService(t, 503)
	s, _ := run(t, good.need(t, "kept"), bad.need(t, "freed"), good.need(t, "closed"))
	becomes(t, s, "kept", true)
	freed := s.Ready("freed")
	s.Set([]ready.Need{good.need(t, "kept"), bad.need(t, "closed")})
	if !isOpen(s, "kept") || isOpen(s, "closed") || !isOpen(s, "freed") {
		t.Error("kept and freed have to be open, closed not")
	}
	<-freed // wakes the waiting goroutine
	asked := bad.asked.Load()
	bad.status.Store(200)
	becomes(t, s, "closed", true)
	if bad.asked.Load() == asked {
		t.Error("opened without a question")
	}
}

// If a service answers with the request itself, the error of net/http quotes its first line.
func TestWhatAServiceRepeatsOfItsURLIsNotLogged(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var repeating sync.WaitGroup
	repeating.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "GET /ready?key=4711 HTTP/1.1\r\n\r\n")
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); repeating.Wait() })
	_, log := run(t, need(t, "q", "http://"+l.Addr().String()+"/ready?key=4711"))
	natstest.Eventually(t, "a warning", func() bool { return strings.Contains(log.said(), "not ready") })
	if strings.Contains(log.said(), "4711") {
		t.Errorf("logged: %s", log.said())
	}
}
