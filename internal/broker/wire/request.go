package wire

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/job"
)

// request is one request to a subject outside JetStream. It is sent once, because the
// responder may not be idempotent.
type request struct {
	Question

	transport *transport
	message   *nats.Msg
	reply     *nats.Msg
	err       error
	done      chan struct{}
}

// errUnsent means that the connection did not take a request before its deadline, so that no
// responder has received it by then.
var errUnsent = fmt.Errorf("%w: the connection did not take the request in time", job.ErrUnknown)

// Request sends the message and waits for its first answer, until ctx ends. Unlike the
// connection's own Request, it never waits for a blocked socket. If the server does not
// permit the subject, it fails at once with job.ErrDenied. Without a connection it fails
// at once too. The error is context.DeadlineExceeded only if the message was sent.
func (w Wire) Request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	r := &request{transport: w.Transport, message: m, done: make(chan struct{})}
	r.Asker, r.ctx, r.many, r.FailDenied = r, ctx, true, true // many: the time to an answer says nothing about the broker
	w.Transport.Ask(&r.Question)
	<-r.done
	return r.reply, r.err
}

func (r *request) Subject() string { return r.message.Subject }

func (r *request) Compose(m *nats.Msg) {
	m.Subject, m.Header, m.Data = r.message.Subject, r.message.Header, r.message.Data
}

func (r *request) Answer(m *nats.Msg, err error) {
	switch {
	case m == nil && r.written.Load() == 0 && errors.Is(err, context.DeadlineExceeded):
		err = errUnsent
	case m == nil:
	case !r.transport.end(&r.Question):
		return // a second answer
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		err = nats.ErrNoResponders
	}
	r.reply, r.err = m, err
	close(r.done)
}

// messages requests the messages with the sequences from begin (inclusive) to end (exclusive), each
// with a request of its own, all at once. It leaves out those that do not exist.
func (w Wire) messages(ctx context.Context, stream string, begin, end uint64) (found []Entry, err error) {
	all := make([]*request, 0, end-begin)
	for seq := begin; seq < end; seq++ {
		m := &nats.Msg{Subject: w.API("DIRECT.GET." + stream), Data: fmt.Appendf(nil, `{"seq":%d}`, seq)}
		r := &request{transport: w.Transport, message: m, done: make(chan struct{})}
		r.Asker, r.ctx, r.many, r.FailDenied, r.limit = r, ctx, true, true, w.Transport.idle.now()
		w.Transport.Ask(&r.Question)
		all = append(all, r)
	}
	for _, r := range all {
		<-r.done
		e, failed := Entry{}, r.err
		if failed == nil {
			e, failed = w.direct(r.reply)
		}
		switch {
		case failed == nil:
			found = append(found, e)
		case !errors.Is(failed, ErrNothing):
			err = failed
		}
	}
	w.Transport.idle.learn(err)
	return found, err
}

// Listen calls f for each message on subject, one call at a time, until stop is called.
// Neither Listen nor stop waits for the connection: the transport's writer subscribes and
// unsubscribes, in order with the other messages that it sends.
func (w Wire) Listen(subject string, f func(*nats.Msg)) (stop func(), err error) {
	if w.Link().IsClosed() {
		return nil, fmt.Errorf("listen on %s: %w", subject, nats.ErrConnectionClosed)
	}
	var over atomic.Bool
	var sub *nats.Subscription // used only by the writer
	w.Transport.Do(func(conn Port) {
		if !over.Load() {
			sub, _ = conn.Subscribe(subject, func(m *nats.Msg) { // it fails only if the connection is closed
				if !over.Load() {
					f(m)
				}
			})
		}
	})
	return func() {
		if !over.Swap(true) {
			w.Transport.Do(func(Port) {
				if sub != nil {
					_ = sub.Unsubscribe()
				}
			})
		}
	}, nil
}
