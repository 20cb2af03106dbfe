package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/action/natsaction"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// asRun returns the alert as a job.Run, because the action that sends it takes one.
func (d *Deliverer) asRun(m message) job.Run {
	return job.Run{Slot: m.slot, Attempt: m.event.Attempt, Fence: m.event.Fence, Namespace: d.cfg.Namespace, Payload: m.body, Output: io.Discard}
}

// headers returns the headers of an alert that differ from the headers of an action.
func headers(m message) []spec.Header {
	all := []spec.Header{{Name: "Idempotency-Key", Value: m.key}, {Name: "Cronce-Alert", Value: string(m.event.Alert)}}
	if len(m.body) > 0 && !json.Valid(m.body) {
		all = append(all, spec.Header{Name: "Content-Type", Value: "text/plain; charset=utf-8"})
	}
	return all
}

// call sends the alert as an http action sends a slot. Errors do not contain values from the
// environment.
func (d *Deliverer) call(ctx context.Context, method string, h job.AlertHTTP, m message) error {
	text, err := d.urlOf(h)
	if err != nil {
		return err
	}
	configured, err := codec.ParseURL(text)
	if err != nil {
		return err
	}
	u := configured
	if m.url != "" {
		if u, err = codec.ParseURL(m.url); err != nil {
			return err
		}
	}
	request := spec.HTTP{URL: u, Method: method, Timeout: limit, Headers: headers(m)}
	for _, header := range h.Headers {
		request.Headers = append(request.Headers, spec.Header{Name: header.Name, Prefix: header.Prefix, Env: header.Env})
	}
	send, err := httpaction.New(request, d.transport, d.cfg.Getenv)
	if err != nil {
		return fmt.Errorf("on this node: %w", err)
	}
	err = d.limited(ctx, u.String(), u.Scheme+"://"+u.Host, func(ctx context.Context) error { return send(ctx, d.asRun(m)) })
	hopeless := isHopeless(httpaction.Status(err))
	if busy := postponed(0); err != nil && h.URLEnv != "" && !errors.As(err, &busy) {
		err = redact(err, configured, u, "$"+h.URLEnv)
	}
	if hopeless {
		return hopelessError{err}
	}
	return err
}

// hopelessError is an answer of a service that it will give again: nobody listens at the URL, or the request is
// not accepted.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

// isHopeless reports whether a service will likely give the same answer to each further try.
func isHopeless(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status <= 499
}

// redact replaces the secret URL, its path, and the URL derived from it with placeholder in the text
// of the error. It keeps the delay that the service asks for.
func redact(err error, secret, derived *url.URL, placeholder string) error {
	text := err.Error()
	for _, shown := range []string{httpaction.Show(derived), httpaction.Show(secret)} {
		text = strings.ReplaceAll(text, shown, placeholder)
	}
	if len(secret.Path) > 1 {
		text = strings.ReplaceAll(text, secret.Path, placeholder)
	}
	if delay, asked := job.RetryDelay(err); asked {
		return job.RetryAfter(delay, errors.New(text))
	}
	return errors.New(text)
}

// answerWait is how long publish waits for an answer.
const answerWait = 2 * time.Second

func (d *Deliverer) publish(ctx context.Context, subject string, m message) error {
	if strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.") || strings.HasPrefix(subject, d.cfg.Namespace+".") {
		return fmt.Errorf("subject %s belongs to the server or to this namespace: alerts must not go there", subject)
	}
	msg := nats.NewMsg(subject)
	msg.Data = m.body
	for _, h := range action.Headers(ctx, d.asRun(m)) {
		msg.Header.Set(h.Name, h.Value)
	}
	for _, h := range headers(m) {
		msg.Header.Set(h.Name, h.Value)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	answer, err := d.cfg.Request(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("subject %s: no subscriber", subject)
	case errors.Is(err, job.ErrDenied):
		return fmt.Errorf("subject %s: this node's login may not publish there", subject)
	case errors.Is(err, context.DeadlineExceeded):
		return nil // a subscriber has the alert, and does not answer
	case err != nil:
		return err
	}
	if err := natsaction.NotStored(answer.Data); err != nil {
		return fmt.Errorf("subject %s: %w", subject, err)
	}
	return nil
}

const (
	// maxPerTarget bounds the running deliveries to one URL or subject, maxPerHost those to one host, and
	// maxDeliveries those to all.
	maxPerTarget  = 16
	maxPerHost    = 64
	maxDeliveries = 256

	// busyDelay is the delay of an alert whose target, or this node, has no capacity.
	busyDelay = time.Second

	// maxBackoff is the longest time for which a failing host or subject is left alone. A URL is left alone for
	// up to maxDelay: its host answers, and will likely answer the same again.
	maxBackoff = time.Minute

	// Each alert that is postponed because its target fails waits longer than the one before by spread, up to
	// maxSpread. So 100,000 alerts of a dead webhook are not all redelivered every few minutes.
	spread    = 100 * time.Millisecond
	maxSpread = time.Hour

	// maxTargets is the number of targets above which idle ones are dropped.
	maxTargets = 1000
)

// targets limits the running deliveries to each target, which is a URL or a subject, and to each host. It backs
// off from those that fail. A URL that fails delays no alert of another URL, and a host no alert of another host.
type targets struct {
	now func() time.Time

	mu      sync.Mutex
	all     map[string]*target // URLs, subjects and hosts
	running int
}

type target struct {
	running   int
	retry     *backoff.ExponentialBackOff
	pause     time.Duration // since the last failure; zero: the last delivery succeeded
	until     time.Time     // no delivery before
	postponed int           // alerts since the last success
}

func newTargets(now func() time.Time) *targets {
	return &targets{now: now, all: map[string]*target{}}
}

// result is the result of a delivery.
type result int

const (
	delivered  result = iota
	failed            // the URL or subject failed: its host, if it has one, has answered
	hostFailed        // the host refused the connection, did not answer in time, or said that it fails
)

// resultOf returns the result of a delivery over HTTP. A host that answers 5xx or 429 says something of itself, and
// with every other status something of the URL.
func resultOf(err error) result {
	switch status := httpaction.Status(err); {
	case err == nil:
		return delivered
	case status == 0, status == http.StatusTooManyRequests, status >= 500:
		return hostFailed
	}
	return failed
}

// get returns the target of that name, and adds it if there is none. s.mu is held.
func (s *targets) get(name string, longest time.Duration) *target {
	t := s.all[name]
	if t == nil {
		s.forget()
		t = &target{retry: newBackoff(longest)}
		s.all[name] = t
	}
	return t
}

// both returns the target, and its host, or nil if host is empty. s.mu is held.
func (s *targets) both(name, host string) (t, h *target) {
	if host == "" {
		return s.get(name, maxBackoff), nil
	}
	return s.get(name, maxDelay), s.get(host, maxBackoff)
}

// acquire begins a delivery to a target, at a host or not, which release ends. If ok is false, wait is the delay
// before the next try.
func (s *targets) acquire(name, host string) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, h := s.both(name, host)
	wait = t.wait(s.now(), maxPerTarget)
	if h != nil {
		wait = max(wait, h.wait(s.now(), maxPerHost))
	}
	if s.running == maxDeliveries {
		wait = max(wait, busyDelay)
	}
	if wait > 0 {
		return wait, false
	}
	for _, t := range []*target{t, h} {
		if t != nil {
			t.running++
		}
	}
	s.running++
	return 0, true
}

// wait returns how long a delivery has to wait for the target, which may have at most most deliveries at once.
func (t *target) wait(now time.Time, most int) time.Duration {
	left := t.until.Sub(now)
	switch {
	case left > 0:
	case t.pause > 0 && t.running > 0: // one delivery probes a failing target
		left = max(busyDelay, t.pause)
	case t.running >= most:
		return busyDelay
	default:
		return 0
	}
	t.postponed++
	return max(left, min(time.Duration(t.postponed)*spread, maxSpread))
}

// release ends a delivery. If several that ran at the same time fail, they count as one failure.
func (s *targets) release(name, host string, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, h := s.both(name, host)
	now := s.now()
	t.running--
	s.running--
	if h != nil {
		h.running--
	}
	switch {
	case h == nil && r != delivered:
		t.fail(now)
	case r == delivered:
		t.succeed()
		if h != nil {
			h.succeed()
		}
	case r == failed:
		t.fail(now)
		h.succeed()
	default:
		h.fail(now)
		t.until = now.Add(2 * h.pause) // so that an alert of another URL of the host is tried first
	}
}

func (t *target) succeed() {
	t.retry.Reset()
	t.pause, t.until, t.postponed = 0, time.Time{}, 0
}

func (t *target) fail(now time.Time) {
	if !now.Before(t.until) {
		t.pause = t.retry.NextBackOff()
		t.until = now.Add(t.pause)
	}
}

// newBackoff returns a backoff that never gives up. Its pauses have at most that length.
func newBackoff(longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(2*time.Second), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(longest), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
}

// forget drops the targets that are idle and not in backoff, if there are too many targets. s.mu is
// held.
func (s *targets) forget() {
	if len(s.all) < maxTargets {
		return
	}
	for name, t := range s.all {
		if t.running == 0 && !s.now().Before(t.until) {
			delete(s.all, name)
		}
	}
}
