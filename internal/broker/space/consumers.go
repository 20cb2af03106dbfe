package space

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// consumer reads a durable consumer of the stream.
func (s *Space) consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	var c jetstream.Consumer // after an error, a request that Ask abandoned may still write it
	err := s.Ask(ctx, "look for consumer "+name+" of "+layout.Title(stream), s.API("CONSUMER.INFO."+stream+"."+name), func(ctx context.Context) (err error) {
		c, err = s.JS.Consumer(ctx, stream, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// createConsumer creates a durable consumer. If a different one exists by now, it returns that one. If the
// server, the account or the stream limits unacked messages, it creates the consumer with the limit.
func (s *Space) createConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	for {
		c, err := s.tryCreateConsumer(ctx, stream, want)
		limit := wire.AckPendingLimit(err)
		if limit < 1 || limit >= want.MaxAckPending {
			return c, err
		}
		want.MaxAckPending = limit
	}
}

func (s *Space) tryCreateConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	var c jetstream.Consumer // see consumer
	err := s.Ask(ctx, "create consumer "+want.Durable+" of "+layout.Title(stream), s.API("CONSUMER.CREATE."+stream+"."+want.Durable), func(ctx context.Context) (err error) {
		c, err = s.JS.CreateConsumer(ctx, stream, want)
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return s.consumer(ctx, stream, want.Durable)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// NodeConsumer is a durable consumer that nodes use and that belongs to no queue.
type NodeConsumer struct {
	// Job is the job that the messages start. If it is empty, the messages are alerts.
	Job string

	Stream, Consumer string

	// Info is nil if the consumer does not exist or could not be read. Err is the error of the read:
	// job.ErrNotFound if the stream does not exist, nil if the stream has no such consumer.
	Info *jetstream.ConsumerInfo
	Err  error
}

// NodeConsumers reads the consumer of alerts. For each given job that messages of another stream
// start, it reads the consumer of those messages.
func (s *Space) NodeConsumers(ctx context.Context, jobs []plans.Entry) []NodeConsumer {
	consumers := []NodeConsumer{s.readNodeConsumer(ctx, NodeConsumer{Stream: s.EventStream(), Consumer: layout.AlertConsumer})}
	for _, e := range jobs {
		if !e.Job.On.IsZero() {
			consumers = append(consumers, s.readOnConsumer(ctx, e))
		}
	}
	return consumers
}

// readOnConsumer reads the consumer of the job's current plan. If there is none, it reads the one
// of an earlier plan, if that still exists.
func (s *Space) readOnConsumer(ctx context.Context, e plans.Entry) NodeConsumer {
	var best NodeConsumer
	for i, consumer := range layout.OnConsumers(s.Namespace, e.Job.Name) {
		t := s.readNodeConsumer(ctx, NodeConsumer{Job: e.Job.Name, Stream: e.Job.On.Stream, Consumer: consumer})
		current := t.Info != nil && t.Info.Config.Metadata[onFromKey] == e.Since().UTC().Format(time.RFC3339Nano)
		if i == 0 || current || best.Info == nil && t.Info != nil {
			best = t
		}
	}
	return best
}

// readNodeConsumer reads the consumer, and sets Info or Err. If the stream has no such consumer, both
// stay nil.
func (s *Space) readNodeConsumer(ctx context.Context, t NodeConsumer) NodeConsumer {
	c, err := s.consumer(ctx, t.Stream, t.Consumer)
	switch {
	case err == nil:
		t.Info = c.CachedInfo()
	case errors.Is(err, jetstream.ErrConsumerNotFound):
	case errors.Is(err, jetstream.ErrStreamNotFound):
		t.Err = job.ErrNotFound
	default:
		t.Err = err
	}
	return t
}
