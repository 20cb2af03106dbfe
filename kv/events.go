package kv

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// EventFilter narrows Store.Events. The zero value selects all events.
type EventFilter struct {
	// Job selects the events of one job. With exchange.NoJob it selects the events that
	// concern no job. Empty: all.
	Job string

	// Kind selects the events of one kind. Empty: all.
	Kind job.EventKind

	// Since selects the events stored at this time or later. Zero: all.
	Since time.Time
}

// Events iterates over the stored events, oldest first. The broker stores the kinds that
// exchange.KeptKinds lists, for as long as the ledger keeps records. An event that cannot be
// decoded yields an error that wraps job.ErrInvalid or job.ErrVersion, and the iteration
// continues. Any other error ends it.
func (s *Store) Events(ctx context.Context, f EventFilter) iter.Seq2[job.Event, error] {
	if err := codec.ValidateJobFilter(f.Job); err != nil {
		return func(yield func(job.Event, error) bool) { yield(job.Event{}, err) }
	}
	filter := ""
	if f.Job != "" || f.Kind != "" {
		filter = s.EventSubject(cmp.Or(string(f.Kind), "*"), cmp.Or(f.Job, "*"))
	}
	return decodeEach(s.All(ctx, s.EventStream(), filter, f.Since), func(e wire.Entry) (job.Event, bool, error) {
		event, err := decodeEvent(e)
		return event, true, err
	})
}

func decodeEvent(e wire.Entry) (job.Event, error) {
	event, err := exchange.DecodeEvent(e.Data)
	if err == nil {
		err = exchange.CheckEventSubject(event, e.Subject)
	}
	if err != nil {
		return job.Event{}, fmt.Errorf("event %d on %s: %w", e.Revision, e.Subject, err)
	}
	return event, nil
}

// EventsAfter calls f with each stored event after the cursor, and with the event's sequence,
// until f returns false. It advances the cursor. If name is not empty, it leaves out the events of
// other jobs. If an event cannot be decoded, f gets the error.
func (s *Store) EventsAfter(ctx context.Context, name string, at *wire.Cursor, f func(job.Event, uint64, error) bool) error {
	filter := ""
	if name != "" {
		filter = s.EventSubject("*", name)
	}
	for e, err := range s.After(ctx, s.EventStream(), filter, at) {
		if err != nil {
			return err
		}
		event, err := decodeEvent(e)
		if !f(event, e.Revision, err) {
			return nil
		}
	}
	return nil
}

// LastEvent returns the sequence of the last stored event.
func (s *Store) LastEvent(ctx context.Context) (uint64, error) {
	return s.LastSequence(ctx, "look for the last event", s.EventStream())
}

// Alert publishes an alert and waits until the broker has stored it. The message ID makes the broker
// drop copies. The stream drops them whatever their subject is, and a login that may write other events
// can guess the ID. So if the broker reports a duplicate, Alert reads what is stored. Unless that is the
// alert, Alert publishes it under an ID that cannot be guessed.
func (s *Store) Alert(ctx context.Context, e job.Event, id string) error {
	ack, err := s.storeEvent(ctx, e, jetstream.WithMsgID(id))
	if err != nil || !ack.Duplicate {
		return err
	}
	switch is, err := s.isAlert(ctx, e, id, ack.Sequence); {
	case is:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("read what is stored as the alert about %s: %w: %w", e.ID, job.ErrUnknown, err)
	case err != nil:
		s.Log.Warn("cannot read what is stored as an alert; it is published again", "slot", e.ID, "message_id", id, "error", err)
	default:
		if has, err := s.HasAlert(ctx, e, id, e.Time); has {
			return err // an earlier delivery of the slot has published it under another ID
		}
		s.Log.Warn("another message has the ID of an alert; it is published under another ID", "slot", e.ID, "message_id", id, "sequence", ack.Sequence)
	}
	_, err = s.storeEvent(ctx, e, jetstream.WithMsgID(id+secondID+rand.Text()))
	return err
}

// secondID follows the message ID of an alert that was published although another message has that ID.
const secondID = "/again/"

// isAlert reports whether the message of the events at a sequence is an alert like e. A replica may have
// to catch up before it has the message.
func (s *Store) isAlert(ctx context.Context, e job.Event, id string, sequence uint64) (bool, error) {
	stream, err := s.JS.Stream(ctx, s.EventStream())
	for pause, n := wire.NewBackoff(), 0; err == nil; n++ {
		var m *jetstream.RawStreamMsg
		m, err = stream.GetMsg(ctx, sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) && n < catchUpReads && wire.Wait(ctx, pause.NextBackOff()) {
			err = nil
			continue
		}
		if err == nil {
			return isAlertID(m.Header, id) && m.Subject == s.EventSubject(string(e.Kind), e.Job), nil
		}
	}
	return false, err
}

const catchUpReads = 5

// isAlertID reports whether a message was published as the alert with the message ID id.
func isAlertID(header nats.Header, id string) bool {
	has := header.Get(jetstream.MsgIDHeader)
	return has == id || strings.HasPrefix(has, id+secondID)
}

// AlertOnce stores an alert, which may have been stored since the given time. If that is long ago, for example
// because the message of an ended slot is delivered again, from a queue that had no worker, the stream may
// have forgotten the alert's message ID. So AlertOnce first looks for the alert in the stored events. If a login with the
// permissions of an older version may not read them, or if they are not read within patience, the alert may
// be stored twice. now is the time by the broker's clock.
func AlertOnce(ctx context.Context, store interface {
	HasAlert(ctx context.Context, e job.Event, id string, since time.Time) (bool, error)
	Alert(ctx context.Context, e job.Event, id string) error
}, e job.Event, id string, since, now time.Time, patience time.Duration,
) error {
	if now.Sub(since) > exchange.AlertsFold {
		looking, cancel := context.WithTimeout(ctx, patience)
		has, err := store.HasAlert(looking, e, id, since)
		late := looking.Err() != nil
		cancel()
		if has || err != nil && !late && !errors.Is(err, job.ErrDenied) {
			return err
		}
	}
	return store.Alert(ctx, e, id)
}

// mostAlerts bounds how many alerts HasAlert reads, and alertsAtOnce how many it requests at once. The
// alert about an outcome usually follows within seconds. A job with many alerts must not keep the message
// of its slot waiting, or the heartbeats that share the connection.
const (
	mostAlerts   = 1000
	alertsAtOnce = 100
)

// HasAlert reports whether the broker has stored an alert like e with the message ID id. It reads the first
// alerts of the job from a little before the given time on, and returns false if it does not find it among a
// thousand.
func (s *Store) HasAlert(ctx context.Context, e job.Event, id string, since time.Time) (bool, error) {
	n, w := 0, s.Wire
	w.BatchSize = alertsAtOnce
	for stored, err := range w.All(ctx, s.EventStream(), s.EventSubject(string(e.Kind), e.Job), since.Add(-time.Minute)) {
		if err != nil {
			return false, fmt.Errorf("look for an earlier alert about %s: %w", e.ID, err)
		}
		if isAlertID(stored.Header, id) {
			return true, nil
		}
		if n++; n == mostAlerts {
			break
		}
	}
	return false, nil
}

// StoreEvent publishes an event of a kind that the broker stores (see exchange.KeptKinds) and,
// unlike Emit, waits until the broker has stored it. The broker may store it twice.
func (s *Store) StoreEvent(ctx context.Context, e job.Event) error {
	_, err := s.storeEvent(ctx, e)
	return err
}

func (s *Store) storeEvent(ctx context.Context, e job.Event, options ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	data, err := exchange.MarshalEvent(e, s.Room())
	if err != nil {
		return nil, err
	}
	options = append([]jetstream.PublishOpt{jetstream.WithExpectStream(s.EventStream()), jetstream.WithRetryAttempts(0)}, options...)
	subject := s.EventSubject(string(e.Kind), e.Job)
	acks := make(chan *jetstream.PubAck, 1) // a request that Ask abandoned may still be answered
	err = s.Ask(ctx, "store event of "+e.ID, subject, func(ctx context.Context) error {
		ack, err := s.JS.Publish(ctx, subject, data, options...)
		if err == nil {
			core.TrySend(acks, ack)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-acks, nil
}

// Emit publishes an event as a core NATS message, and does not wait. Subscribers receive it, and
// the stream <namespace>_events keeps the kinds that exchange.KeptKinds lists. Emit does not
// learn whether either of them received the event, so nothing may depend on it. If the event is
// too large for the server, Emit shortens the event's output, and then its error.
func (s *Store) Emit(e job.Event) error {
	data, err := exchange.MarshalEvent(e, s.Room())
	if err != nil {
		return err
	}
	s.Transport.Publish(s.EventSubject(string(e.Kind), cmp.Or(e.Job, exchange.NoJob)), "", data, time.Time{})
	return nil
}

// EmitAndFlush is Emit for a caller that may then close the connection. It waits up to a second
// until the event has been passed to the connection.
func (s *Store) EmitAndFlush(e job.Event) error {
	if err := s.Emit(e); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wire.AttemptTimeout)
	defer cancel()
	return s.Flush(ctx)
}

// Follow calls f with each event of one job as it happens, one call at a time, until stop is
// called. An empty name follows all jobs. Events can be lost, for example while the connection
// is down. f must not block.
//
// Call Follow first, and then read the slot's record. The subscription reaches the server before
// the read, so a change is either in the record, or an event reports it later.
func (s *Store) Follow(name string, f func(job.Event)) (stop func(), err error) {
	if err := codec.ValidateJobFilter(name); err != nil {
		return nil, err
	}
	return s.Listen(s.EventSubject("*", cmp.Or(name, "*")), func(m *nats.Msg) {
		var e job.Event
		if json.Unmarshal(m.Data, &e) == nil && exchange.CheckEventSubject(e, m.Subject) == nil {
			f(e)
		}
	})
}

// Reconnected returns a channel that is closed at the next reconnect, or when the connection
// is closed for good.
func (s *Store) Reconnected() <-chan struct{} { return s.Link().Changed() }
