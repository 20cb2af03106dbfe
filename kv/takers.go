package kv

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Taker is a durable consumer that nodes take messages from beside the queues.
type Taker struct {
	// Job is the job that the messages start; empty: they are alerts.
	Job string

	Stream, Consumer string

	// Info is nil when there is none, or when it cannot be said: Err says why. It wraps
	// job.ErrNotFound when there is no such stream.
	Info *jetstream.ConsumerInfo
	Err  error
}

// Takers looks at the consumer of alerts and at those of the jobs, of these, that the
// messages of other streams start.
func (s *Store) Takers(ctx context.Context, jobs []core.Entry) []Taker {
	takers := []Taker{s.taker(ctx, Taker{Stream: s.eventStream(), Consumer: AlertConsumer})}
	for _, e := range jobs {
		if !e.Job.On.IsZero() {
			takers = append(takers, s.onTaker(ctx, e))
		}
	}
	return takers
}

// onTaker looks at the consumer of the job's current plan, or else at one that an edit
// has left behind.
func (s *Store) onTaker(ctx context.Context, e core.Entry) Taker {
	var best Taker
	for i, consumer := range OnConsumers(s.namespace, e.Job.Name) {
		t := s.taker(ctx, Taker{Job: e.Job.Name, Stream: e.Job.On.Stream, Consumer: consumer})
		current := t.Info != nil && t.Info.Config.Metadata[onFromKey] == e.Since().UTC().Format(time.RFC3339Nano)
		if i == 0 || current || best.Info == nil && t.Info != nil {
			best = t
		}
	}
	return best
}

func (s *Store) taker(ctx context.Context, t Taker) Taker {
	t.Info, t.Err = s.consumerInfo(ctx, t.Stream, t.Consumer)
	switch {
	case errors.Is(t.Err, jetstream.ErrConsumerNotFound):
		t.Err = nil
	case errors.Is(t.Err, jetstream.ErrStreamNotFound):
		t.Err = job.ErrNotFound
	}
	return t
}
