package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// run returns the alert in the form in which an action gets a slot.
func (d *Deliverer) run(slot job.Slot, e job.Event, body []byte) job.Run {
	return job.Run{Slot: slot, Attempt: e.Attempt, Fence: e.Fence, Namespace: d.cfg.Namespace, Payload: body, Output: io.Discard}
}

// post sends the alert as an http action sends a slot. Errors do not contain values from the
// environment.
func (d *Deliverer) post(ctx context.Context, h job.AlertHTTP, slot job.Slot, e job.Event, body []byte) error {
	text := h.URL
	if h.URLEnv != "" {
		if text = strings.TrimSpace(d.cfg.Getenv(h.URLEnv)); text == "" {
			return fmt.Errorf("environment variable %s, which has the webhook's URL, is not set on this node", h.URLEnv)
		}
	}
	u, err := codec.ParseURL(text)
	switch {
	case err != nil && h.URLEnv != "":
		return fmt.Errorf("environment variable %s: %w", h.URLEnv, err)
	case err != nil:
		return err
	}
	request := spec.HTTP{URL: u, Method: http.MethodPost, Timeout: limit}
	for _, header := range h.Headers {
		request.Headers = append(request.Headers, spec.Header{Name: header.Name, Prefix: header.Prefix, Env: header.Env})
	}
	send, err := httpaction.New(request, d.transport, d.cfg.Getenv)
	if err != nil {
		return fmt.Errorf("on this node: %w", err)
	}
	// The bound is per host, because a host that fails does so for all of its webhooks.
	err = d.bounded(ctx, u.Scheme+"://"+u.Host, func(ctx context.Context) error { return send(ctx, d.run(slot, e, body)) })
	if put := postponed(0); err != nil && h.URLEnv != "" && !errors.As(err, &put) {
		return hidden(err, httpaction.Show(u), u.Path, "$"+h.URLEnv)
	}
	return err
}

// hidden returns the error without the secret URL and its path.
func hidden(err error, shown, path, instead string) error {
	text := strings.ReplaceAll(err.Error(), shown, instead)
	if len(path) > 1 {
		text = strings.ReplaceAll(text, path, instead)
	}
	return errors.New(text)
}

// answerWait is how long publish waits for an answer.
const answerWait = 2 * time.Second

// publish sends the alert to a subject.
func (d *Deliverer) publish(ctx context.Context, subject string, slot job.Slot, e job.Event, body []byte) error {
	if strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.") || strings.HasPrefix(subject, d.cfg.Namespace+".") {
		return fmt.Errorf("subject %s belongs to the server or to this namespace: alerts must not go there", subject)
	}
	msg := nats.NewMsg(subject)
	msg.Data = body
	for _, h := range action.Headers(ctx, d.run(slot, e, body)) {
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
		return nil // a subscriber that does not answer
	case err != nil:
		return err
	}
	var ack struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if json.Unmarshal(answer.Data, &ack) == nil && ack.Error != nil {
		return fmt.Errorf("subject %s: not stored: %s", subject, ack.Error.Description)
	}
	return nil
}
