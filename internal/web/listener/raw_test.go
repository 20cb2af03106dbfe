package listener_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/auth"
	"github.com/cronce-io/cronce/internal/web/listener"
	"github.com/cronce-io/cronce/internal/web/secure"
)

// guarded serves the dashboard without its pages, and sends the requests that would reach them to
// passed.
func guarded(t *testing.T) (addr string, passed chan string) {
	t.Helper()
	g, err := auth.New(auth.Config{Listen: "127.0.0.1:8080", Local: "alice@laptop"})
	if err != nil {
		t.Fatal(err)
	}
	passed = make(chan string, 100)
	h := secure.Wrap(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed <- r.Method + " " + r.Host + " " + r.URL.Path
		_, _ = io.Copy(io.Discard, r.Body) // what the test sends may be cut
		fmt.Fprint(w, "served")
	})))
	url, _ := serve(t, listener.Config{}, h, func() {})
	return strings.TrimPrefix(url, "http://"), passed
}

// exchange sends bytes and returns the statuses of all answers.
func exchange(t *testing.T, addr, text string) (statuses []int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(natstest.Patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite() // no request follows
	in := bufio.NewReader(c)
	for {
		w, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, w.Body) // only the status counts
		statuses = append(statuses, w.StatusCode)
	}
}

// A proxy and the server must not disagree about where a request ends and which host it is for.
func TestSmuggledHostsAndRequestsAreRefused(t *testing.T) {
	t.Parallel()
	addr, passed := guarded(t)
	const order = "POST /api/v1/jobs/a:pause HTTP/1.1\r\nHost: localhost\r\n"
	for name, tc := range map[string]struct {
		text string
		want int // of the first answer
	}{
		"another name":                   {"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		"no host":                        {"GET / HTTP/1.1\r\n\r\n", 400},
		"two hosts":                      {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400},
		"an absolute address":            {"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 421},
		"a host with a path":             {"GET / HTTP/1.1\r\nHost: localhost/evil.example\r\n\r\n", 400},
		"a host with a user":             {"GET / HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n", 400},
		"a host behind a blank":          {"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400},
		"a forwarded host":               {"GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n\r\n", 421},
		"a folded header":                {"GET / HTTP/1.1\r\nHost: localhost\r\n evil.example\r\n\r\n", 400},
		"a request line with a CR":       {"GET /\rx HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"two lengths":                    {order + "Content-Length: 0\r\nContent-Length: 44\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"a length with a sign":           {order + "Content-Length: +4\r\n\r\n1234", 400},
		"an encoding that is not known":  {order + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n", 501},
		"an encoding with another name":  {order + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		"a page of another site":         {order + "Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n", 403},
		"a page that rebinds":            {"POST / HTTP/1.1\r\nHost: evil.example:8080\r\nOrigin: http://evil.example:8080\r\nContent-Length: 0\r\n\r\n", 421},
		"a body that is announced large": {order + "Content-Length: 99999999999\r\n\r\n", 413},
	} {
		statuses := exchange(t, addr, tc.text)
		if len(statuses) == 0 || statuses[0] != tc.want {
			t.Errorf("%s: answers %v, want %d first", name, statuses, tc.want)
		}
		select {
		case what := <-passed:
			t.Errorf("%s: %s was passed on, answers %v", name, what, statuses)
		default:
		}
	}
	if statuses := exchange(t, addr, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); len(statuses) != 1 || statuses[0] != 200 {
		t.Errorf("a good request: answers %v", statuses)
	}
}

// If a request has both a length and chunks, the chunks count (RFC 9112). The text after the last
// chunk is another request, which needs its own host and its own login.
func TestRequestBehindChunksIsCheckedLikeAnyOther(t *testing.T) {
	t.Parallel()
	addr, _ := guarded(t)
	const text = "POST /api/v1/jobs/a:pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	if statuses := exchange(t, addr, text); len(statuses) != 2 || statuses[0] != 200 || statuses[1] != 421 {
		t.Errorf("answers %v, want 200 and 421", statuses)
	}
}

// A client that never ends its headers holds its connection for some seconds only.
func TestClientThatSendsItsHeadersSlowlyIsCutOff(t *testing.T) {
	t.Parallel()
	addr, passed := guarded(t)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(natstest.Patience))
	rest, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("the server keeps the connection: %v", err)
	}
	if len(passed) > 0 || strings.Contains(string(rest), "served") {
		t.Errorf("half a request was served: %s", rest)
	}
}
