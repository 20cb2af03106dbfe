package wire

import (
	"context"
	"errors"
	"fmt"
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
func (w Wire) Ask(ctx context.Context, what, subject string, request func(context.Context) error) error {
	began, pause := time.Now(), NewPause()
	for limit := AttemptTimeout; ; limit = min(2*limit, apiTimeout) {
		attempted := time.Now()
		err := w.WithComplaints(subject, attempted, within(ctx, limit, request))
		switch {
		case err == nil:
			return nil
		case HasCode(err, codeNoResources) && time.Since(began) < PeerWait && Wait(ctx, pause.NextBackOff()):
			// The stream got more replicas a moment ago, and the server cannot place its consumers yet.
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
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

// repeat calls ask until it is answered or ctx ends. Each attempt may take twice as long as the one
// before. Unlike Ask, it also repeats what the server denies, or what no server answers at the
// moment.
func repeat(ctx context.Context, ask func(context.Context) error) error {
	pause := NewPause()
	for limit := AttemptTimeout; ; limit = min(2*limit, apiTimeout) {
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := ask(attempt)
		cancel()
		if err == nil || Classify(err) != Unanswered || !Wait(ctx, pause.NextBackOff()) {
			return err
		}
	}
}

// Fetch requests up to n messages from the consumer. If ctx ends, it returns soon, even if
// the connection's lock is not free.
func Fetch(ctx context.Context, c jetstream.Consumer, n int) (jetstream.MessageBatch, error) {
	made := make(chan jetstream.MessageBatch, 1)
	err := within(ctx, FeedWait, func(context.Context) error {
		batch, err := c.Fetch(n, jetstream.FetchContext(ctx))
		made <- batch
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-made, nil
}

// FeedWait is the timeout of a pull request.
const FeedWait = 30 * time.Second
