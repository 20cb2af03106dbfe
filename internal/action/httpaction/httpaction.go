package httpaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// NewTransport returns the transport that all http actions of a process share. Call its
// CloseIdleConnections at the end.
func NewTransport() *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           http1,
		DisableCompression:  true,
		// The worker limits how many requests run at once. A limit here would make handlers
		// wait while their timeout runs.
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Fresh returns a transport like t that makes a new connection for each request, for
// requests that may be sent only once: a kept connection can turn out to be closed when the
// request is on its way.
func Fresh(t *http.Transport) *http.Transport {
	t = t.Clone()
	t.DisableKeepAlives = true
	return t
}

// call is the request of one job.
type call struct {
	spec.HTTP
	transport *http.Transport
	name      string // "POST http://127.0.0.1:8080/jobs/report", for errors
	headers   []header
	secrets   []string // of the URL
}

// New returns a handler that sends the request of c. It reads the environment variables now,
// with getenv. A variable that is missing or not valid in a header is an error.
func New(c spec.HTTP, transport *http.Transport, getenv func(string) string) (job.Handler, error) {
	headers, err := newHeaders(c.Headers, getenv)
	if err != nil {
		return nil, err
	}
	q := &call{HTTP: c, transport: transport, name: c.Method + " " + Show(c.URL), headers: headers, secrets: action.URLSecrets(c.URL)}
	return q.run, nil
}

// Show returns a URL without the parts that may be secret: user, password and query.
func Show(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return plain.String()
}

func (c *call) run(ctx context.Context, run job.Run) error {
	values, secrets, err := readHeaders(c.headers)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	secrets = append(secrets, c.secrets...)
	ctx, cancel := action.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := c.exchange(ctx, run, values, secrets); err != nil {
		return action.Hidden(fmt.Errorf("%s: %w", c.name, err), secrets)
	}
	return nil
}

// exchange sends the request and judges the response.
func (c *call) exchange(ctx context.Context, run job.Run, headers http.Header, secrets []string) error {
	req, err := c.request(once(ctx), run, headers)
	if err != nil {
		return err
	}
	// The transport is used without a client: it does not follow redirects, and its errors
	// do not show the URL.
	resp, err := c.transport.RoundTrip(req)
	if errors.Is(err, io.EOF) {
		err = errBroken
	}
	if err != nil {
		return action.Reason(ctx, err)
	}
	defer resp.Body.Close()
	err = readAnswer(resp, secrets, run.Output)
	if err != nil {
		err = action.Reason(ctx, err)
	}
	return judge(resp, err)
}

func (c *call) request(ctx context.Context, run job.Run, headers http.Header) (*http.Request, error) {
	var body io.Reader
	// Servers ignore the body of GET and HEAD.
	if len(run.Payload) > 0 && c.Method != http.MethodGet && c.Method != http.MethodHead {
		body = bytes.NewReader(run.Payload)
	}
	req, err := action.NewRequest(ctx, c.Method, c.URL, body)
	if err != nil {
		return nil, err
	}
	for _, h := range action.Headers(ctx, run) {
		req.Header.Set(h.Name, h.Value)
	}
	maps.Copy(req.Header, headers)
	return req, nil
}

// errBroken replaces the error of a repetition that was prevented, and of a connection that
// ended without an answer.
var errBroken = errors.New("the connection broke before there was an answer")

// once makes the transport send a request at most once. The transport asks for a connection
// before each try. If it asks again after it began to write, it is about to repeat a request
// that the service may have seen. once then ends ctx, and closes a connection that the transport
// gets all the same. If a connection broke before anything was written, the transport may use
// another one.
//
// It needs connections that carry one request at a time: HTTP/1.1.
func once(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	var written, spent atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { written.Store(true) },
		GetConn: func(string) {
			if written.Load() {
				spent.Store(true)
				cancel(errBroken)
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			if spent.Load() {
				info.Conn.Close()
			}
		},
	})
}
