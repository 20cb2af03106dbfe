package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// The bound is per host, because a host that fails does so for all of its webhooks.
	err = d.limited(ctx, u.Scheme+"://"+u.Host, func(ctx context.Context) error { return send(ctx, d.asRun(m)) })
	if busy := postponed(0); err != nil && h.URLEnv != "" && !errors.As(err, &busy) {
		return redact(err, configured, u, "$"+h.URLEnv)
	}
	return err
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
	// maxPerTarget bounds the running deliveries to one target, and maxDeliveries those to all
	// targets.
	maxPerTarget  = 16
	maxDeliveries = 256

	// busyDelay is the delay of an alert whose target, or this node, has no capacity.
	busyDelay = time.Second

	// maxBackoff is the longest time for which a failing target is left alone.
	maxBackoff = time.Minute

	// maxTargets is the number of targets above which idle ones are dropped.
	maxTargets = 1000
)

// targets limits the running deliveries to each target and backs off from targets that fail,
// so that no target delays the alerts of another.
type targets struct {
	now func() time.Time

	mu      sync.Mutex
	all     map[string]*target
	running int
}

type target struct {
	running int
	retry   *backoff.ExponentialBackOff
	pause   time.Duration // since the last failure; zero: the last delivery succeeded
	until   time.Time     // no delivery before
}

func newTargets(now func() time.Time) *targets {
	return &targets{now: now, all: map[string]*target{}}
}

// acquire begins a delivery, which release ends. If ok is false, wait is the delay before
// the next try.
func (s *targets) acquire(name string) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[name]
	if t == nil {
		s.forget()
		t = &target{retry: newBackoff()}
		s.all[name] = t
	}
	left := t.until.Sub(s.now())
	switch {
	case left > 0:
		return left, false
	case s.running == maxDeliveries || t.running == maxPerTarget:
		return busyDelay, false
	case t.pause > 0 && t.running > 0: // one delivery probes a failing target
		return max(busyDelay, t.pause), false
	}
	t.running++
	s.running++
	return 0, true
}

// release ends a delivery. If several that ran at the same time fail, they count as one
// failure.
func (s *targets) release(name string, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.all[name], s.now()
	t.running--
	s.running--
	switch {
	case !failed:
		t.retry.Reset()
		t.pause, t.until = 0, time.Time{}
	case !now.Before(t.until):
		t.pause = t.retry.NextBackOff()
		t.until = now.Add(t.pause)
	}
}

// newBackoff returns a backoff that never gives up.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(2*time.Second), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(maxBackoff), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
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
