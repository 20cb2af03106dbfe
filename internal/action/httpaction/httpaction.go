package httpaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/job"
)

// NewTransport returns what all http actions of a process share. Call its
// CloseIdleConnections when there are no more.
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
		// How many requests there are at once is for the worker's places to say: a
		// limit here would have handlers wait while their time runs.
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Fresh is a transport like t that makes a connection for each request, for what may
// be sent only once in all: a kept connection can turn out to be closed when the
// request is on its way.
func Fresh(t *http.Transport) *http.Transport {
	t = t.Clone()
	t.DisableKeepAlives = true
	return t
}

// call is one job's request.
type call struct {
	jobfile.HTTP
	transport *http.Transport
	name      string // "POST http://127.0.0.1:8080/jobs/report", for errors
	headers   []header
	secrets   []string // of the URL
}

// New returns a handler that sends the request of c. Environment variables are
// read now, by getenv: one that is missing or no header's text is an error.
func New(c jobfile.HTTP, transport *http.Transport, getenv func(string) string) (job.Handler, error) {
	headers, err := newHeaders(c.Headers, getenv)
	if err != nil {
		return nil, err
	}
	q := &call{HTTP: c, transport: transport, name: c.Method + " " + Show(c.URL), headers: headers, secrets: action.URLSecrets(c.URL)}
	return q.run, nil
}

// Show is a URL without what may be secret: user, password and query.
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

// exchange sends the request and judges what comes back.
func (c *call) exchange(ctx context.Context, run job.Run, headers http.Header, secrets []string) error {
	req, err := c.request(once(ctx), run, headers)
	if err != nil {
		return err
	}
	// The transport, not a client around it: it knows no redirects, and its errors
	// do not show the URL.
	resp, err := c.transport.RoundTrip(req)
	if errors.Is(err, io.EOF) {
		err = errBroken
	}
	if err != nil {
		return action.Reason(ctx, err)
	}
	defer resp.Body.Close()
	output, err := readAnswer(resp, secrets)
	_, _ = run.Output.Write(output) // never fails
	if err != nil {
		err = action.Reason(ctx, err)
	}
	return judge(resp, err)
}

func (c *call) request(ctx context.Context, run job.Run, headers http.Header) (*http.Request, error) {
	var body io.Reader
	// GET and HEAD have no body that servers would look at.
	if len(run.Payload) > 0 && c.Method != http.MethodGet && c.Method != http.MethodHead {
		body = bytes.NewReader(run.Payload)
	}
	// The URL comes after it: the error of a URL would show it.
	req, err := http.NewRequestWithContext(ctx, c.Method, "/", body)
	if err != nil {
		return nil, err
	}
	req.URL = c.URL
	req.Header.Set("User-Agent", "cronce")
	for _, h := range action.Headers(ctx, run) {
		req.Header.Set(h.Name, h.Value)
	}
	if c.URL.User != nil {
		password, _ := c.URL.User.Password()
		req.SetBasicAuth(c.URL.User.Username(), password)
	}
	for name, value := range headers {
		req.Header[name] = value
	}
	return req, nil
}
