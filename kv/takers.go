package kv

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
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
func (s *Store) Takers(ctx context.Context, jobs []job.Entry) []Taker {
	takers := []Taker{{Stream: s.eventStream(), Consumer: AlertConsumer}}
	for _, e := range jobs {
		if !e.Job.On.IsZero() {
			takers = append(takers, Taker{Job: e.Job.Name, Stream: e.Job.On.Stream, Consumer: OnConsumer(s.namespace, e.Job.Name)})
		}
	}
	for i := range takers {
		t := &takers[i]
		t.Err = s.ask(ctx, "look for consumer "+t.Consumer+" of "+title(t.Stream), s.api("CONSUMER.INFO."+t.Stream+"."+t.Consumer), func(ctx context.Context) error {
			c, err := s.js.Consumer(ctx, t.Stream, t.Consumer)
			if err == nil {
				t.Info = c.CachedInfo()
			}
			return err
		})
		switch {
		case errors.Is(t.Err, jetstream.ErrConsumerNotFound):
			t.Err = nil
		case errors.Is(t.Err, jetstream.ErrStreamNotFound):
			t.Err = job.ErrNotFound
		}
	}
	return takers
}
