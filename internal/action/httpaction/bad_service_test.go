package httpaction_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/job"
)

// raw is a service that may send anything. It calls talk for each connection, and closes the
// connection when talk returns. talk calls its second argument to read a request. requests counts
// the requests that arrived whole.
func raw(t *testing.T, talk func(c net.Conn, requests func())) (url string, requests *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int32)
	var talks sync.WaitGroup
	t.Cleanup(func() { l.Close(); talks.Wait() })
	talks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talks.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				talk(c, func() {
					r, err := http.ReadRequest(in)
					if err == nil {
						_, err = io.Copy(io.Discard, r.Body)
					}
					if err == nil {
						requests.Add(1)
					}
				})
			})
		}
	})
	return "http://" + l.Addr().String(), requests
}

// answer answers the first request of each connection with text and closes it.
func answer(text string) func(net.Conn, func()) {
	return func(c net.Conn, request func()) {
		request()
		_, _ = io.WriteString(c, text)
	}
}

func TestBadAnswersAreRetriedAndNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, outcome, message, output string }{
		"nothing":            {"", "retry", "the connection broke before there was an answer", ""},
		"garbage":            {"\x00\x01\xff\r\n\r\n", "retry", "malformed HTTP", ""},
		"another protocol":   {"-ERR unknown command\r\n", "retry", "malformed HTTP", ""},
		"half a header":      {"HTTP/1.1 200 OK\r\nContent-Le", "retry", "malformed MIME header", ""},
		"half a body":        {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "retry", "status 200 OK, but the answer is incomplete: unexpected EOF", "half"},
		"half a chunk":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf", "retry", "status 200 OK, but the answer is incomplete: unexpected EOF", "half"},
		"a wrong chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "retry", "invalid byte in chunk length", ""},
		"half an error":      {"HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\nhalf", "permanent", "status 400 Bad Request", "half"},
		"endless header":     {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20), "retry", "exceeded", ""},
		"a switch":           {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nxxxx", "retry", "status 101 Switching Protocols", ""},
		"a status of itself": {"HTTP/1.1 299 \x1b[31mred\r\nContent-Length: 0\r\n\r\n", "succeeded", "", ""},
		"no length":          {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "succeeded", "", "until the end"},
		"compressed":         {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz", "succeeded", "", "xyz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := raw(t, answer(c.answer))
			var out bytes.Buffer
			err := newHandler(t, action(t, url))(t.Context(), newRun(&out))
			if outcome(err) != c.outcome || err != nil && !strings.Contains(err.Error(), c.message) || out.String() != c.output {
				t.Errorf("%s with %v, output %q, want %s with %q and %q", outcome(err), err, &out, c.outcome, c.message, c.output)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Errorf("the error moves the terminal: %q", err)
			}
		})
	}
}

func TestConnectionsThatCannotBeMadeAreRetried(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	for url, message := range map[string]string{
		closed.URL + "/jobs":                    "connection refused",
		"http://no-such-host.invalid:8080/jobs": "no-such-host.invalid",
	} {
		err := newHandler(t, action(t, url))(t.Context(), newRun(io.Discard))
		if outcome(err) != "retry" || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %s, %v", url, outcome(err), err)
		}
	}
}

func TestAnAnswerOfManyMegabytesCostsLittle(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	service := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for range 1000 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return // the caller has closed the connection
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var out bytes.Buffer
	if err := newHandler(t, action(t, service.URL))(t.Context(), newRun(&out)); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if out.Len() < 1<<20 || out.Len() > 1<<20+100 || !strings.HasSuffix(out.String(), "[the answer is longer than 1024 KiB: the rest was not read]\n") {
		t.Errorf("%d bytes of output, which end with %q, want 1 MiB and a word about the rest", out.Len(), out.String()[max(0, out.Len()-80):])
	}
	if all := after.TotalAlloc - before.TotalAlloc; all > 16<<20 { // other tests run beside it
		t.Errorf("%d bytes were allocated", all)
	}
	service.Close() // waits for the handler
	if n := sent.Load(); n > 32<<20 {
		t.Errorf("the service could send %d bytes", n)
	}
}

func TestAnAnswerWithoutEndEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, ".")
			w.(http.Flusher).Flush()
			<-tick.C
		}
	})
	a := action(t, service.URL)
	a.Timeout = 200 * time.Millisecond
	var out bytes.Buffer
	err := newHandler(t, a)(t.Context(), newRun(&out))
	if want := "POST " + service.URL + ": status 200 OK, but the answer is incomplete: timeout of 200ms"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if out.Len() == 0 {
		t.Error("what came was not kept")
	}
}

// net/http repeats a request with an Idempotency-Key by itself when a kept connection breaks. A
// service that crashes on the request would be called twice in one attempt.
func TestOneAttemptIsOneRequest(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "GET", "PUT"} {
		for _, payload := range []string{"", `{"format":"pdf"}`} {
			url, requests := raw(t, func(c net.Conn, request func()) {
				request()
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				request() // and crashes
			})
			a := action(t, url)
			a.Method = method
			h := newHandler(t, a)
			run := newRun(io.Discard)
			run.Payload = []byte(payload)
			if err := h(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			err := h(t.Context(), run)
			if outcome(err) != "retry" || requests.Load() != 2 {
				t.Errorf("%s %q: %s, %v, and %d requests in two attempts", method, payload, outcome(err), err, requests.Load())
			}
		}
	}
}

// A service that was restarted has closed the kept connections. The next attempt uses a new one.
func TestAKeptConnectionThatIsClosedIsReplaced(t *testing.T) {
	t.Parallel()
	url, requests := raw(t, func(c net.Conn, request func()) {
		request()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	h := newHandler(t, action(t, url))
	failed := 0
	for range 50 {
		if h(t.Context(), newRun(io.Discard)) != nil {
			failed++ // it was sent while the service closed the connection
		}
	}
	if int(requests.Load())+failed != 50 || failed > 10 {
		t.Errorf("%d requests and %d failures in 50 attempts", requests.Load(), failed)
	}
}

// A job with a single attempt must not lose it to a closed connection.
func TestAFreshConnectionIsNeverOneThatIsClosed(t *testing.T) {
	t.Parallel()
	url, requests := raw(t, func(c net.Conn, request func()) {
		request()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	h, err := httpaction.New(action(t, url), httpaction.Fresh(newTransport(t)), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := h(t.Context(), newRun(io.Discard)); err != nil {
			t.Error(err)
		}
	}
	if n := requests.Load(); n != 50 {
		t.Errorf("%d requests in 50 attempts", n)
	}
}

func TestJobsShareConnections(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// More than is kept, less than is drained.
		fmt.Fprint(w, strings.Repeat("x", 200<<10))
	}))
	service.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	service.Start()
	t.Cleanup(service.Close)
	transport := newTransport(t)
	var handlers []job.Handler
	for n := range 5 {
		h, err := httpaction.New(action(t, fmt.Sprintf("%s/jobs/%d", service.URL, n)), transport, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		handlers = append(handlers, h)
	}
	for n := range 50 {
		if err := handlers[n%5](t.Context(), newRun(io.Discard)); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 50 runs of five jobs, want 1", n)
	}
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if err := handlers[n%5](t.Context(), newRun(io.Discard)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := opened.Load(); n > 20 {
		t.Errorf("%d connections for 20 runs at once", n)
	}
}
