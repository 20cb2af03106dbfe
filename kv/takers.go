package kv

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Taker is a durable consumer that nodes use besides those of the queues.
type Taker struct {
	// Job is the job that the messages start. If it is empty, the messages are alerts.
	Job string

	Stream, Consumer string

	// Info is nil if the consumer does not exist, or if it could not be read; Err is the
	// reason. If the stream does not exist, Err wraps job.ErrNotFound.
	Info *jetstream.ConsumerInfo
	Err  error
}

// Takers reads the consumer of alerts, and those of the given jobs that messages of other
// streams start.
func (s *Store) Takers(ctx context.Context, jobs []core.Entry) []Taker {
	takers := []Taker{s.taker(ctx, Taker{Stream: s.eventStream(), Consumer: AlertConsumer})}
	for _, e := range jobs {
		if !e.Job.On.IsZero() {
			takers = append(takers, s.onTaker(ctx, e))
		}
	}
	return takers
}

// onTaker reads the consumer of the job's current plan. If there is none, it reads one that
// an edit left behind.
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
