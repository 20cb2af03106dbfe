package alert

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/alertbody"
	"github.com/cronce-io/cronce/job"
)

// message is what is sent to the target of one alert.
type message struct {
	slot  job.Slot
	event job.Event

	// body is the body of the request or NATS message. key is the idempotency key.
	body []byte
	key  string

	// url replaces the URL of the target if the format needs another one.
	url string
}

// idempotencyKey returns the key by which a receiver recognises copies. One slot can have several
// alerts. The key of an alert about a failed, expired or missed slot is the slot ID, as with
// actions. All other keys also contain the kind of the alert.
func (d *Deliverer) idempotencyKey(e job.Event) string {
	key := e.ID
	if d.cfg.Namespace != job.DefaultNamespace {
		key = d.cfg.Namespace + "/" + key
	}
	switch e.Alert {
	case job.Failed, job.Expired, job.Missed:
		return key
	}
	return key + "/" + string(e.Alert)
}

// message writes the body of the alert for its target.
func (d *Deliverer) message(a job.Alert, slot job.Slot, e job.Event) (m message, err error) {
	m = message{slot: slot, event: e, key: d.idempotencyKey(e)}
	data := alertbody.Data{
		Alert: string(e.Alert), Namespace: d.cfg.Namespace, Job: e.Job, Slot: e.ID, Time: e.Time, Attempt: e.Attempt, Fence: e.Fence,
		Node: e.Node, Error: e.Error, Output: e.Output, Count: e.Count, Last: e.Last, Since: e.Since,
	}
	if slot.Token == "" {
		data.Instant = slot.At
	}
	if a.KeyEnv != "" {
		if data.Key = strings.TrimSpace(d.cfg.Getenv(a.KeyEnv)); data.Key == "" {
			return m, fmt.Errorf("environment variable %s, which has the key, is not set on this node", a.KeyEnv)
		}
	}
	switch {
	case a.Template != "":
		m.body, err = fromTemplate(a.Template, data)
	case a.Format != "":
		topic := ""
		if a.Format == "ntfy" && a.HTTP != nil {
			if m.url, topic, err = d.ntfy(*a.HTTP); err != nil {
				return m, err
			}
		}
		m.body, err = alertbody.Service(a.Format, data, topic)
	default:
		m.body, err = json.Marshal(e) // not the message as received, which may be megabytes long
	}
	return m, err
}

// headerRoom is the part of the server's max_payload that is reserved for the headers of a
// message.
const headerRoom = 2 << 10

// fittingMessage returns the message. If a NATS message is too long for the server, fittingMessage
// leaves out the output. If it is still too long, fittingMessage shortens the error. Otherwise every
// retry would fail.
func (d *Deliverer) fittingMessage(a job.Alert, slot job.Slot, e job.Event) (message, error) {
	m, err := d.message(a, slot, e)
	most := d.cfg.MaxPayload() - headerRoom
	if a.NATS == nil || most <= 0 {
		return m, err
	}
	for _, cut := range []func(){func() { e.Output = "" }, func() { e.Error = codec.ClipTo(e.Error, 80) }} {
		if err != nil || len(m.body) <= most {
			break
		}
		cut()
		m, err = d.message(a, slot, e)
	}
	return m, err
}

// fromTemplate writes the body with a template. An error of Execute may contain the key, which
// fromTemplate replaces with asterisks.
func fromTemplate(text string, data alertbody.Data) ([]byte, error) {
	t, err := alertbody.ParseTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	body, err := t.Execute(data)
	if err != nil {
		if data.Key != "" {
			return nil, fmt.Errorf("template: %s", strings.ReplaceAll(err.Error(), data.Key, "***"))
		}
		return nil, fmt.Errorf("template: %w", err)
	}
	return body, nil
}

// ntfy returns the URL of the server, which takes messages as JSON, and the topic.
func (d *Deliverer) ntfy(h job.AlertHTTP) (server, topic string, err error) {
	text, err := d.urlOf(h)
	if err != nil {
		return "", "", err
	}
	if server, topic, err = alertbody.NtfyTopic(text); err != nil && h.URLEnv != "" {
		err = fmt.Errorf("environment variable %s: %w", h.URLEnv, err)
	}
	return server, topic, err
}

// urlOf returns the URL of a webhook. Its errors do not contain the URL.
func (d *Deliverer) urlOf(h job.AlertHTTP) (string, error) {
	if h.URLEnv == "" {
		return h.URL, nil
	}
	text := strings.TrimSpace(d.cfg.Getenv(h.URLEnv))
	if text == "" {
		return "", fmt.Errorf("environment variable %s, which has the webhook's URL, is not set on this node", h.URLEnv)
	}
	if _, err := codec.ParseURL(text); err != nil {
		return "", fmt.Errorf("environment variable %s: %w", h.URLEnv, err)
	}
	return text, nil
}
