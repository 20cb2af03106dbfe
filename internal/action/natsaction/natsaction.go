// Package natsaction sends a NATS request as the handler of a job.
//
// One attempt is one request over the connection of the node, with the payload as its body
// and the headers of package action. Any answer means success, unless it has the header
// Nats-Service-Error-Code, with which services of the micro framework report failures. 400,
// 410 and 422 fail for good. All other codes are retried, as is a subject without
// subscribers.
//
// A request cannot be cancelled. A service goes on after the timeout of its caller, and its
// late answer is dropped. The next attempt has the same idempotency key and a larger fence.
//
// If a stream captures the subject, it answers too. Its acknowledgement means success, which
// is right if storing the request was all that was wanted. If the stream is full it answers
// with an error, which is retried. If a service listens on the same subject, do not call it
// with requests: the answer of the stream may come first.
package natsaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// Headers of an answer by which a service of the micro framework says that it
// failed.
const (
	headerErrorCode = "Nats-Service-Error-Code"
	headerError     = "Nats-Service-Error"
)

// New returns a handler that sends the request of c over nc.
func New(c spec.NATS, nc *nats.Conn) job.Handler {
	return func(ctx context.Context, run job.Run) error {
		ctx, cancel := action.WithTimeout(ctx, c.Timeout)
		defer cancel()
		if err := request(ctx, nc, c.Subject, run); err != nil {
			return fmt.Errorf("request to %s: %w", c.Subject, err)
		}
		return nil
	}
}

func request(ctx context.Context, nc *nats.Conn, subject string, run job.Run) error {
	msg := nats.NewMsg(subject)
	msg.Data = run.Payload
	for _, h := range action.Headers(ctx, run) {
		msg.Header.Set(h.Name, h.Value)
	}
	answer, err := ask(ctx, nc, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("no subscriber: %w", err)
	case err != nil:
		return action.Reason(ctx, err)
	}
	_, _ = run.Output.Write(answer.Data) // never fails
	if err := refusal(answer.Header); err != nil {
		return err
	}
	return NotStored(answer.Data)
}

// ask sends the request. It returns when ctx ends, even if the socket of the connection is
// blocked and the client waits longer. A request whose ctx has ended is not sent.
func ask(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	type answer struct {
		msg *nats.Msg
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		// Without a connection the client would buffer the request and send it later,
		// however late.
		if !nc.IsConnected() {
			answered <- answer{err: nats.ErrDisconnected}
			return
		}
		m, err := nc.RequestMsgWithContext(ctx, msg)
		answered <- answer{m, err}
	}()
	select {
	case a := <-answered:
		return a.msg, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refusal returns the error of the service, or nil.
func refusal(h nats.Header) error {
	code := h.Get(headerErrorCode)
	if code == "" {
		return nil
	}
	err := fmt.Errorf("error %s: %s", code, h.Get(headerError))
	if status, _ := strconv.Atoi(code); action.Rejected(status) {
		return job.Permanent(err)
	}
	return err
}

// NotStored returns the error of a stream that did not store the request, or nil if data is
// something else. The JSON of a service may have an error too, but not with the error code
// and the stream name that a stream sends.
func NotStored(data []byte) error {
	var ack struct {
		Stream string `json:"stream"`
		Error  struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &ack) != nil || ack.Stream == "" || ack.Error.Code == 0 {
		return nil
	}
	return fmt.Errorf("stream %s did not store the request: %s", ack.Stream, ack.Error.Description)
}
