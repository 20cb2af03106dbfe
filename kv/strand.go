package kv

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// strand knows which messages of a stream the server gives to nobody any more.
//
// A consumer forgets what stands at or below its ack floor, acked or not. Its floor
// passes messages that were not acked when somebody purges one subject of the stream:
// the server (2.15) takes the purged ones for acked, counts the floor on from there,
// and drops what is below it from what it would deliver again (consumer.purge,
// checkPending). So one purge by hand of a job's messages takes the messages of other
// jobs from their slots, of all that were in hand or waited for another attempt, and
// leaves them in the stream.
//
// Rejected: to have the consumer begin anew at such a message. It delivers all again
// that is in hand, and needs a right over it that no node has.
type strand struct {
	s      *Store
	stream string
	floors map[string]uint64 // by queue; nil: not asked yet
	most   uint64
}

func (s *Store) strand(stream string) *strand { return &strand{s: s, stream: stream} }

// look asks for the floors, once. Who may not ask sees nothing stranded.
func (d *strand) look(ctx context.Context) error {
	if d.floors != nil {
		return nil
	}
	queues, err := d.s.queues(ctx, d.stream)
	if err != nil && !errors.Is(err, job.ErrDenied) {
		return err
	}
	d.floors = map[string]uint64{}
	for _, q := range queues {
		d.floors[q.Name] = q.AckFloor.Stream
		d.most = max(d.most, q.AckFloor.Stream)
	}
	return nil
}

// any reports whether anything may be stranded: nearly always there is nothing at
// all left below the floors.
func (d *strand) any(ctx context.Context) (bool, error) {
	if err := d.look(ctx); err != nil || d.most == 0 {
		return false, err
	}
	var first uint64
	err := d.s.ask(ctx, "look at "+title(d.stream), d.s.api("STREAM.INFO."+d.stream), func(ctx context.Context) error {
		stream, err := d.s.js.Stream(ctx, d.stream)
		if err == nil {
			first = stream.CachedInfo().State.FirstSeq
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil
	}
	return first <= d.most, err
}

// beyond reports whether nothing after the message, on its subject, is stranded.
func (d *strand) beyond(w WaitingSlot) bool { return w.Sequence > d.most }

// mark sets Stranded.
func (d *strand) mark(ctx context.Context, w *WaitingSlot) error {
	if w.Timer {
		return nil
	}
	if err := d.look(ctx); err != nil {
		return err
	}
	w.Stranded = w.Sequence <= d.floors[w.Queue]
	return nil
}
