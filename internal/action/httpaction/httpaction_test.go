package httpaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var instant = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func newRun(output io.Writer) job.Run {
	return job.Run{
		Slot: job.NewSlot("report", instant), Attempt: 2, Fence: 41, Due: instant,
		Node: "host-1-x-y", Queue: "default", Namespace: "cronce", Output: output,
		Payload: json.RawMessage(`{"format":"pdf"}`),
	}
}

func newTransport(t *testing.T) *http.Transport {
	t.Helper()
	c := httpaction.NewTransport()
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// action is a POST to rawURL.
func action(t *testing.T, rawURL string) spec.HTTP {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return spec.HTTP{URL: u, Method: http.MethodPost}
}

func newHandler(t *testing.T, c spec.HTTP) job.Handler {
	t.Helper()
	h, err := httpaction.New(c, newTransport(t), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// serve answers requests until the test ends.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// outcome returns what package job derives from a handler's error.
func outcome(err error) string {
	delay, asked := job.RetryDelay(err)
	switch {
	case err == nil:
		return "succeeded"
	case job.IsPermanent(err):
		return "permanent"
	case asked:
		return "retry after " + delay.String()
	}
	return "retry"
}

func TestTheStatusDecides(t *testing.T) {
	t.Parallel()
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			if name != "status" {
				w.Header()[name] = values
			}
		}
		status := 200
		_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
		w.WriteHeader(status)
	})
	for _, c := range []struct{ query, outcome, message string }{
		{"status=200", "succeeded", ""},
		{"status=202", "succeeded", ""},
		{"status=204", "succeeded", ""},
		{"status=400", "permanent", "status 400 Bad Request"},
		{"status=410", "permanent", "status 410 Gone"},
		{"status=422", "permanent", "status 422 Unprocessable Entity"},
		{"status=401", "retry", "status 401 Unauthorized"},
		{"status=404", "retry", "status 404 Not Found"},
		{"status=409", "retry", "status 409 Conflict"},
		{"status=500", "retry", "status 500 Internal Server Error"},
		{"status=599", "retry", "status 599"},
		{"status=304", "retry", "status 304 Not Modified"},
		{"status=302&Location=http://user:word@other.example:81/a%3Fb", "retry", "status 302 Found to other.example:81, which is not followed: set url to the target"},
		{"status=307&Location=/elsewhere", "retry", "status 307 Temporary Redirect"},
		{"status=308&Location=:::", "retry", "status 308 Permanent Redirect"},
		{"status=503&Retry-After=7", "retry after 7s", "status 503 Service Unavailable"},
		{"status=429&Retry-After=7", "retry after 7s", "status 429 Too Many Requests"},
		{"status=503&Retry-After=0", "retry", "status 503 Service Unavailable"},
		{"status=503&Retry-After=-7", "retry", "status 503 Service Unavailable"},
		{"status=503&Retry-After=soon", "retry", "status 503 Service Unavailable"},
		{"status=503&Retry-After=999999999", "retry after 1h0m0s", "status 503 Service Unavailable"},
		{"status=503&Retry-After=99999999999999999999999", "retry after 1h0m0s", "status 503 Service Unavailable"},
		// The service's clock, not ours.
		{"status=503&Date=Sat, 21 Nov 2026 07:00:00 GMT&Retry-After=Sat, 21 Nov 2026 07:00:09 GMT", "retry after 9s", "status 503 Service Unavailable"},
		{"status=503&Date=Sat, 21 Nov 2026 07:00:00 GMT&Retry-After=Sat, 21 Nov 2026 06:59:00 GMT", "retry", "status 503 Service Unavailable"},
		{"status=503&Date=Sat, 21 Nov 2026 07:00:00 GMT&Retry-After=Sat, 21 Nov 9999 06:59:00 GMT", "retry after 1h0m0s", "status 503 Service Unavailable"},
		{"status=400&Retry-After=7", "permanent", "status 400 Bad Request"},
	} {
		a := action(t, service.URL+"/jobs/report?"+strings.ReplaceAll(c.query, " ", "%20"))
		err := newHandler(t, a)(t.Context(), newRun(io.Discard))
		message := ""
		if err != nil {
			message = strings.TrimPrefix(err.Error(), "POST "+service.URL+"/jobs/report: ")
		}
		if outcome(err) != c.outcome || message != c.message {
			t.Errorf("%s: %s with %q, want %s with %q", c.query, outcome(err), message, c.outcome, c.message)
		}
	}
}

func TestTheRequestTellsOfTheSlot(t *testing.T) {
	t.Parallel()
	heard := make(chan *http.Request, 1)
	var body bytes.Buffer
	service := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body.Reset()
		_, _ = body.ReadFrom(r.Body)
		heard <- r
	})
	triggered := newRun(io.Discard)
	triggered.Slot, triggered.Namespace, triggered.Payload = job.Slot{Job: "report", Token: "order 4711/ä"}, "shop", nil
	shard := newRun(io.Discard)
	shard.Slot, shard.Shard, shard.Shards = shard.Slot.WithShard(3, 8), 3, 8
	for _, c := range []struct {
		method, body string
		run          job.Run
		headers      map[string]string
	}{
		{"POST", `{"format":"pdf"}`, newRun(io.Discard), map[string]string{
			"Idempotency-Key": "report:2026-11-21T07:00:00Z", "Cronce-Slot-Id": "report:2026-11-21T07:00:00Z", "Cronce-Slot": "2026-11-21T07:00:00Z",
			"Cronce-Job": "report", "Cronce-Attempt": "2", "Cronce-Fence": "41", "Content-Type": "application/json", "Content-Length": "16",
		}},
		{"PUT", "", triggered, map[string]string{
			"Idempotency-Key": "shop/report:@order 4711/ä", "Cronce-Slot-Id": "report:@order 4711/ä", "Cronce-Slot": "", "Content-Type": "", "Content-Length": "0",
		}},
		{"GET", "", newRun(io.Discard), map[string]string{"Idempotency-Key": "report:2026-11-21T07:00:00Z", "Content-Length": "", "Cronce-Shard": "", "Cronce-Shards": ""}},
		{"POST", `{"format":"pdf"}`, shard, map[string]string{"Idempotency-Key": "report:2026-11-21T07:00:00Z#3of8", "Cronce-Shard": "3", "Cronce-Shards": "8"}},
		{"HEAD", "", newRun(io.Discard), nil},
		{"DELETE", `{"format":"pdf"}`, newRun(io.Discard), nil},
	} {
		a := action(t, service.URL+"/jobs?a=b")
		a.Method, a.Headers = c.method, []spec.Header{{Name: "X-Key", Value: "mine"}}
		if err := newHandler(t, a)(t.Context(), c.run); err != nil {
			t.Fatal(err)
		}
		r := <-heard
		if r.Method != c.method || r.URL.RequestURI() != "/jobs?a=b" || body.String() != c.body || r.Header.Get("X-Key") != "mine" {
			t.Errorf("%s: got %s %s with %q and %v", c.method, r.Method, r.URL, &body, r.Header)
		}
		for name, want := range c.headers {
			got := r.Header.Get(name)
			if got != want {
				t.Errorf("%s: header %s: got %q, want %q", c.method, name, got, want)
			}
		}
	}
}

func TestThePayloadsTypeCanBeSet(t *testing.T) {
	t.Parallel()
	service := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header["Content-Type"]) })
	a := action(t, service.URL)
	a.Headers = []spec.Header{{Name: "Content-Type", Value: "application/cloudevents+json"}}
	var out bytes.Buffer
	if err := newHandler(t, a)(t.Context(), newRun(&out)); err != nil || out.String() != "[application/cloudevents+json]" {
		t.Errorf("got %s, %v", &out, err)
	}
}

// The headers of the job are not sent to the target of the redirect either.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusPermanentRedirect)
	})
	err := newHandler(t, action(t, service.URL))(t.Context(), newRun(io.Discard))
	if outcome(err) != "retry" || !strings.Contains(err.Error(), strings.TrimPrefix(other.URL, "http://")) {
		t.Errorf("%s: %v", outcome(err), err)
	}
}

func TestTimeoutsEndTheRequestAndSayWhichOne(t *testing.T) {
	t.Parallel()
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of a request only after its body
		<-r.Context().Done()
	})
	parents := map[string]func() (context.Context, context.CancelFunc){
		"timeout of 50ms": func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		"timeout of 40ms": func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(t.Context(), 40*time.Millisecond, fmt.Errorf("%w of 40ms", job.ErrTimeout))
		},
		"lease lost":         causedBy(t, job.ErrLeaseLost),
		"worker is stopping": causedBy(t, job.ErrStopping),
	}
	for want, parent := range parents {
		a := action(t, service.URL+"/jobs")
		if want == "timeout of 50ms" {
			a.Timeout = 50 * time.Millisecond
		}
		ctx, cancel := parent()
		err := newHandler(t, a)(ctx, newRun(io.Discard))
		cancel()
		if outcome(err) != "retry" || err.Error() != "POST "+service.URL+"/jobs: "+want {
			t.Errorf("%s: %v, want %s", outcome(err), err, want)
		}
		for _, cause := range []error{job.ErrTimeout, job.ErrLeaseLost, job.ErrStopping} {
			if errors.Is(err, cause) != strings.HasPrefix(want, cause.Error()) {
				t.Errorf("%v: wraps %v: %t", err, cause, errors.Is(err, cause))
			}
		}
	}
	service.Close() // waits until the service has noticed the end of each request
}

// causedBy returns a function that makes a context, which soon ends with this cause.
func causedBy(t *testing.T, cause error) func() (context.Context, context.CancelFunc) {
	return func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
		return ctx, func() { timer.Stop(); cancel(nil) }
	}
}
