package kv

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

func (s *Store) eventStream() string { return s.namespace + "_events" }

// EventFilter narrows Store.Events. Its zero value takes everything.
type EventFilter struct {
	// Job takes the events about one job, or with core.NoJob those about none.
	// Empty: all.
	Job string

	// Since takes the events kept at it or later. Zero: all.
	Since time.Time
}

// Events passes over the events that were kept, oldest first: those of the
// exceptional kinds, for as long as the ledger remembers. One that cannot be
// read comes with an error that wraps job.ErrInvalid or job.ErrVersion and does
// not end the pass;
// any other error does.
func (s *Store) Events(ctx context.Context, f EventFilter) iter.Seq2[job.Event, error] {
	return func(yield func(job.Event, error) bool) {
		filter := ""
		if f.Job != "" {
			if err := codec.ValidateName("job", f.Job); err != nil {
				yield(job.Event{}, err)
				return
			}
			filter = s.EventSubject("*", f.Job)
		}
		for e, err := range s.all(ctx, s.eventStream(), filter, f.Since) {
			if err != nil {
				yield(job.Event{}, err)
				return
			}
			event, err := core.DecodeEvent(e.data)
			if err == nil {
				err = core.CheckEventSubject(event, e.subject)
			}
			if err != nil {
				err = fmt.Errorf("event %d on %s: %w", e.revision, e.subject, err)
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

// Alert publishes an alert under a message ID, so that copies fold, and waits until
// it is kept.
func (s *Store) Alert(ctx context.Context, e job.Event, id string) error {
	return s.tell(ctx, e, jetstream.WithMsgID(id))
}

// Tell publishes an event of an exceptional kind and waits until it is kept,
// unlike Emit. It may be kept twice.
func (s *Store) Tell(ctx context.Context, e job.Event) error { return s.tell(ctx, e) }

func (s *Store) tell(ctx context.Context, e job.Event, options ...jetstream.PublishOpt) error {
	data, err := core.MarshalEvent(e, s.room())
	if err != nil {
		return err
	}
	options = append([]jetstream.PublishOpt{jetstream.WithExpectStream(s.eventStream()), jetstream.WithRetryAttempts(0)}, options...)
	subject := s.EventSubject(string(e.Kind), e.Job)
	return s.ask(ctx, "tell of "+e.ID, subject, func(ctx context.Context) error {
		_, err := s.js.Publish(ctx, subject, data, options...)
		return err
	})
}
