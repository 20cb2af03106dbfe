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

// EventFilter narrows Store.Events. The zero value selects all events.
type EventFilter struct {
	// Job selects the events of one job. With core.NoJob it selects the events that
	// concern no job. Empty: all.
	Job string

	// Since selects the events stored at this time or later. Zero: all.
	Since time.Time
}

// Events iterates over the stored events, oldest first. The broker stores events of the
// exceptional kinds, for as long as the ledger keeps records. An event that cannot be
// decoded yields an error that wraps job.ErrInvalid or job.ErrVersion, and the iteration
// continues. Any other error ends it.
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

// Alert publishes an alert and waits until the broker has stored it. The message ID makes
// the broker drop copies.
func (s *Store) Alert(ctx context.Context, e job.Event, id string) error {
	return s.tell(ctx, e, jetstream.WithMsgID(id))
}

// Tell publishes an event of an exceptional kind and, unlike Emit, waits until the broker
// has stored it. The broker may store it twice.
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
