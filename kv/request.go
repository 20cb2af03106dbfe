package kv

import (
	"context"

	"github.com/nats-io/nats.go"
)

// request is one request to a subject outside JetStream. It is sent once, because the
// responder may not be idempotent.
type request struct {
	question

	transport *transport
	message   *nats.Msg
	reply     *nats.Msg
	err       error
	done      chan struct{}
}

// Request sends the message and waits for its first answer, until ctx ends. Unlike the
// connection's own Request, it never waits for a blocked socket. If the server does not
// permit the subject, it fails at once with job.ErrDenied. Without a connection it fails
// at once too.
func (s *Store) Request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	r := &request{transport: s.transport, message: m, done: make(chan struct{})}
	r.asker, r.ctx, r.many, r.endsDenied = r, ctx, true, true // many: the time to an answer says nothing about the broker
	s.transport.ask(&r.question)
	<-r.done
	return r.reply, r.err
}

func (r *request) subject() string { return r.message.Subject }

func (r *request) compose(m *nats.Msg) {
	m.Subject, m.Header, m.Data = r.message.Subject, r.message.Header, r.message.Data
}

func (r *request) answer(m *nats.Msg, err error) {
	switch {
	case m == nil:
	case !r.transport.take(&r.question):
		return // a second answer
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		err = nats.ErrNoResponders
	}
	r.reply, r.err = m, err
	close(r.done)
}
