package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

func (s *Store) eventStream() string { return s.namespace + "_events" }

// Events passes over the events that were kept since then, oldest first: those of
// the exceptional kinds, for as long as the ledger remembers. One that cannot be
// read comes with an error that wraps job.ErrInvalid and does not end the pass;
// any other error does.
func (s *Store) Events(ctx context.Context, since time.Time) iter.Seq2[job.Event, error] {
	return func(yield func(job.Event, error) bool) {
		for e, err := range s.all(ctx, s.eventStream(), "", since) {
			if err != nil {
				yield(job.Event{}, err)
				return
			}
			var event job.Event
			if err := json.Unmarshal(e.data, &event); err != nil {
				err = fmt.Errorf("%w event %d on %s: %w", job.ErrInvalid, e.revision, e.subject, err)
				if !yield(job.Event{}, err) {
					return
				}
				continue
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}

// Tell publishes an event of an exceptional kind and waits until it is kept,
// unlike Emit. It may be kept twice.
func (s *Store) Tell(ctx context.Context, e job.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.ask(ctx, "tell of "+e.ID, func(ctx context.Context) error {
		_, err := s.js.Publish(ctx, s.EventSubject(string(e.Kind), e.Job), data,
			jetstream.WithExpectStream(s.eventStream()), jetstream.WithRetryAttempts(0))
		return err
	})
}
