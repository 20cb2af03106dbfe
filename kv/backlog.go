package kv

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Backlog is what one queue has to do, as the broker counts it.
type Backlog struct {
	// Waiting is how many of its slots no worker has been given yet, Taken how many
	// were, and have not been settled: they run, wait for their next attempt, or
	// for their turn in their job's lock.
	Waiting, Taken uint64

	// Oldest is when the first of those that wait was stored; zero when none waits
	// or it was not asked for.
	Oldest time.Time
}

// Backlog asks, once, how much a queue has to do, the triggered runs that were set
// for a time and have fired included. Only with oldest does it ask for the oldest's
// time: for that the account needs to read slots, which a worker's does not. No
// queue there yet is an empty one.
func (l *Slots) Backlog(ctx context.Context, queue string, oldest bool) (all Backlog, err error) {
	for _, stream := range []string{l.s.slotStream(), l.s.timerStream()} {
		b, err := l.s.backlog(ctx, stream, queue, oldest)
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
	c, err := s.js.Consumer(ctx, stream, queue)
	if err != nil {
		return Backlog{}, err
	}
	info := c.CachedInfo()
	b := Backlog{Waiting: info.NumPending, Taken: uint64(max(info.NumAckPending, 0))}
	if b.Waiting == 0 || !oldest {
		return b, nil
	}
	from, err := s.js.Stream(ctx, stream)
	if err != nil {
		return Backlog{}, err
	}
	first, err := from.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(info.Config.FilterSubject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // taken meanwhile
	case err != nil:
		return Backlog{}, err
	default:
		b.Oldest = first.Time
	}
	return b, nil
}
