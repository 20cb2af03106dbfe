// Package stream publishes, lists and receives the slots of a namespace: those to run
// (Slots), and triggered runs that are not due yet (Timers). A timer is a message that
// the server schedules. Its subject is its name, so two triggers with the same key share
// one timer.
package stream

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
)

// Store is the two streams that hold the slots of a namespace: those to run, and the
// timers. It is safe for concurrent use.
type Store struct {
	*space.Space
	headers *headers    // of slots
	group   *wire.Group // of publications of slots; nil: each is sent at once
}

// New returns the streams of a namespace.
func New(s *space.Space) *Store {
	store := &Store{Space: s, headers: newHeaders(s.SlotStream())}
	if s.Atomic(s.SlotStream()) {
		store.group = wire.NewGroup(s.Wire)
	}
	return store
}

// Slots returns the stream of slots to run.
func (s *Store) Slots() *Slots { return &Slots{s} }

// Timers returns the triggered runs that are not due yet.
func (s *Store) Timers() *Timers { return &Timers{s} }

// Waiting iterates over the timers, then the fired timers, then the stream of slots. Its
// errors are those of Slots.Waiting.
func (s *Store) Waiting(ctx context.Context, f WaitingFilter) iter.Seq2[WaitingSlot, error] {
	return func(yield func(WaitingSlot, error) bool) {
		for _, pass := range []iter.Seq2[WaitingSlot, error]{s.Timers().Waiting(ctx, f), s.Slots().Waiting(ctx, f)} {
			for w, err := range pass {
				if !yield(w, err) {
					return
				}
			}
		}
	}
}

// Backlog is the unfinished work of one queue, as the broker counts it.
type Backlog struct {
	// Waiting counts the slots that the broker has not delivered yet. Taken counts those
	// that it delivered and that no worker has acked: they run, wait for their next
	// attempt, or wait for their job's lock.
	Waiting, Taken uint64

	// Oldest is the time at which the oldest waiting slot was stored. It is zero if none
	// waits or if the caller did not ask for it.
	Oldest time.Time
}

// Backlog returns the backlog of a queue, fired timers included. It does not repeat an unanswered
// request. Set oldest to get Backlog.Oldest; this needs a login that may read slots, which a
// worker's login may not. A queue that does not exist has an empty backlog.
func (l *Slots) Backlog(ctx context.Context, queue string, oldest bool) (all Backlog, err error) {
	for _, lane := range [][2]string{{l.s.SlotStream(), queue}, {l.s.SlotStream(), layout.BulkLane(queue)}, {l.s.TimerStream(), queue}} {
		b, err := l.s.backlog(ctx, lane[0], lane[1], oldest)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err != nil:
			return Backlog{}, err
		}
		all.Waiting += b.Waiting
		all.Taken += b.Taken
		if !b.Oldest.IsZero() && (all.Oldest.IsZero() || b.Oldest.Before(all.Oldest)) {
			all.Oldest = b.Oldest
		}
	}
	return all, nil
}

func (s *Store) backlog(ctx context.Context, stream, queue string, oldest bool) (Backlog, error) {
	c, err := s.JS.Consumer(ctx, stream, queue)
	if err != nil {
		return Backlog{}, err
	}
	info := c.CachedInfo()
	b := Backlog{Waiting: info.NumPending, Taken: uint64(max(info.NumAckPending, 0))}
	if b.Waiting == 0 || !oldest {
		return b, nil
	}
	from, err := s.JS.Stream(ctx, stream)
	if err != nil {
		return Backlog{}, err
	}
	first, err := from.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(info.Config.FilterSubject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // delivered and acked in the meantime
	case err != nil:
		return Backlog{}, err
	default:
		b.Oldest = s.Stamped(first.Time)
	}
	return b, nil
}
