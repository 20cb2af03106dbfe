package kv

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go/jetstream"
)

// strand finds the messages of a stream that the server no longer delivers.
//
// A consumer does not deliver messages at or below its ack floor, acked or not. If an
// operator purges one subject of the stream, the floor can pass messages without an ack:
// the server (2.15) counts the purged messages as acked, moves the floor on from there,
// and drops what is below it from its redeliveries (consumer.purge, checkPending). So a
// manual purge of one job's messages also strands messages of other jobs: those in flight,
// and those that wait for another attempt. They stay in the stream.
//
// The consumer is not restarted at a stranded message: it would redeliver every message in
// flight, and no node has permission to do that.
type strand struct {
	s      *Store
	stream string
	floors map[string]uint64 // by queue; nil: not read yet
	most   uint64
}

func (s *Store) strand(stream string) *strand { return &strand{s: s, stream: stream} }

// look reads the floors once. If the login may not list consumers, nothing is stranded.
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

// any reports whether a message may be stranded. Usually no messages are left below the
// floors.
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

// beyond reports whether no later message on the same subject is stranded.
func (d *strand) beyond(w WaitingSlot) bool { return w.Sequence > d.most }

// mark sets w.Stranded.
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
