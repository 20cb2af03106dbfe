package wire

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// PeerWait is how long a new cluster may take to discover its servers, and a new stream to
// place its replicas.
const PeerWait = 5 * time.Second

// apiTimeout bounds one request to the JetStream API. Creating a stream on three
// servers takes time.
const apiTimeout = 8 * time.Second

// Ask repeats a request to the JetStream API until the broker answers, ctx ends or the
// server does not permit it. subject is the subject of the request, or its prefix. The
// first attempts are short, because most unanswered requests were lost with a
// connection or a leader. Every request must be safe to repeat.
//
// If JetStream does not respond at all, it is not enabled, or its servers cannot be reached at the moment,
// for example because a leaf node has lost its hub. Ask fails at once only if JetStream has not
// answered on this connection before.
func (w Wire) Ask(ctx context.Context, what, subject string, request func(context.Context) error) error {
	began, pause := time.Now(), NewBackoff()
	for limit := AttemptTimeout; ; limit = min(2*limit, apiTimeout) {
		attempted := time.Now()
		err := w.WithComplaints(subject, attempted, within(ctx, limit, request))
		switch {
		case err == nil:
			w.Transport.answered.Store(w.Prefix, true)
			return nil
		case HasCode(err, codeNoResources) && time.Since(began) < PeerWait && Wait(ctx, pause.NextBackOff()):
			// The stream got more replicas a moment ago, and the server cannot place its consumers yet.
		case errors.Is(err, nats.ErrNoResponders) && !w.hasAnswered(), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			why := "JetStream is not enabled there, or not for this account: start nats-server with -js"
			if w.domain != "" {
				why = fmt.Sprintf("no JetStream domain %q answers: check its name, and that its servers are connected", w.domain)
			}
			return fmt.Errorf("%s on %s: %s: %w", what, w.Link().ConnectedServer().Address, why, err)
		case Classify(err) != Unanswered:
			return fmt.Errorf("%s: %w", what, err)
		case errors.Is(err, job.ErrDenied):
			return fmt.Errorf("%s: %w", what, err)
		case !Wait(ctx, pause.NextBackOff()):
			return fmt.Errorf("%s: %w (after %v): %w", what, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
	}
}

// hasAnswered reports whether the JetStream API has carried out a request of Ask on this connection.
func (w Wire) hasAnswered() bool {
	_, ok := w.Transport.answered.Load(w.Prefix)
	return ok
}

// StreamInfo asks the stream's leader for its description. what names the request in errors.
func (w Wire) StreamInfo(ctx context.Context, what, stream string) (*jetstream.StreamInfo, error) {
	var info *jetstream.StreamInfo // after an error, a request that Ask abandoned may still write it
	err := w.Ask(ctx, what, w.API("STREAM.INFO."+stream), func(ctx context.Context) error {
		s, err := w.JS.Stream(ctx, stream)
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// within calls request with a context that ends after limit. If ctx ends while the
// request waits for the connection's lock, within returns soon. The request then ends by
// itself and its result is dropped. Until ctx ends, only one request runs at a time.
func within(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		done <- request(attempt)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(AttemptTimeout / 10) // the client returns within a moment, unless it waits for the lock
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return ctx.Err()
	}
}

// Fetch requests up to n messages from the consumer. If ctx ends, it returns soon, even if
// the connection's lock is not free.
func Fetch(ctx context.Context, c jetstream.Consumer, n int, opts ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	made := make(chan jetstream.MessageBatch, 1)
	err := within(ctx, FeedWait, func(context.Context) error {
		batch, err := c.Fetch(n, append(opts, jetstream.FetchContext(ctx))...)
		made <- batch
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-made, nil
}

// pullBytes bounds the messages of one pull request. The server closes a connection for which more than
// its max_pending waits, which is 64 MiB by default, and on a slow link other answers wait behind them.
const pullBytes = 2 << 20

// PullBytes returns the bound for the messages of one pull request, in bytes. The largest message fits: the
// server would never answer the request with it otherwise.
func (w Wire) PullBytes() int {
	const names = 16 << 10 // of the subjects of a message and of its ack
	return max(pullBytes, w.Link().MaxPayload()+names)
}

// FeedWait is the timeout of a pull request.
const FeedWait = 30 * time.Second

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
