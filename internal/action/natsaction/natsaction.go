// Package natsaction makes a job's handler out of a NATS request.
//
// One attempt is one request, over the node's own connection, with the payload as
// its body and the headers of package action. Any answer is success, an empty one
// too, unless it carries Nats-Service-Error-Code, by which services of the micro
// framework say that they failed: 400, 410 and 422 fail for good, everything else
// is retried, as is a subject that nobody listens to.
//
// A request cannot be taken back: a service goes on after its caller's timeout,
// and its late answer is dropped. The next attempt has the same idempotency key
// and a larger fence.
//
// A stream that captures the subject answers too, to say that it has stored the
// request. That is success when it is all that was wanted, and a stream that is full
// says that it has not, which is retried; a service behind the same subject must not
// be called by requests then, since the stream's answer may be the first.
package natsaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/job"
)

// Headers of an answer by which a service of the micro framework says that it
// failed.
const (
	headerErrorCode = "Nats-Service-Error-Code"
	headerError     = "Nats-Service-Error"
)

// New returns a handler that sends the request of c over nc.
func New(c jobfile.NATS, nc *nats.Conn) job.Handler {
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
		return fmt.Errorf("nobody listens there: %w", err)
	case err != nil:
		return action.Reason(ctx, err)
	}
	_, _ = run.Output.Write(answer.Data) // never fails
	if err := refusal(answer.Header); err != nil {
		return err
	}
	return notStored(answer.Data)
}

// ask sends the request. It returns when ctx ends, also if the connection's socket takes
// nothing: then the client waits for longer than that, and what ended is not sent.
func ask(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	type answer struct {
		msg *nats.Msg
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		// A request that waits in the client for a connection is sent when there is
		// one, however late.
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

// refusal is the service's error; nil when it has none.
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

// notStored is the error of a stream that did not take the request; nil when data is
// anything else. A service's own JSON may have an error too, but not with the number
// and the stream's name that all of theirs have.
func notStored(data []byte) error {
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
	return fmt.Errorf("stream %s did not store it: %s", ack.Stream, ack.Error.Description)
}
