package stream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/job"
)

// strandedFinder finds the messages of a stream that the server no longer delivers.
//
// A consumer does not deliver messages at or below its ack floor, acked or not. If an
// operator purges one subject of the stream, the floor can pass messages without an ack:
// the server (2.15) counts the purged messages as acked, moves the floor on from there,
// and drops what is below it from its redeliveries (consumer.purge, checkPending). So a
// manual purge of one job's messages also strands messages of other jobs: those in flight,
// and those that wait for another attempt. They stay in the stream.
//
// Cronce does not reset the consumer to a stranded message: the consumer would redeliver every
// message in flight, and no node has the permission for it.
type strandedFinder struct {
	s      *Store
	stream string
	floors map[string]uint64 // by consumer; nil: not read yet
	most   uint64            // the highest floor

	// served is WaitingFilter.Served. unserved is true if a queue that is not among them has messages.
	served   map[string]bool
	unserved bool
}

// readFloors reads the floors once. If the login may not list consumers, mark reports no message as
// stranded.
func (d *strandedFinder) readFloors(ctx context.Context) error {
	if d.floors != nil {
		return nil
	}
	queues, err := d.s.Queues(ctx, d.stream)
	if err != nil && !errors.Is(err, job.ErrDenied) {
		return err
	}
	d.floors = map[string]uint64{}
	for _, q := range queues {
		d.floors[q.Name] = q.AckFloor.Stream
		d.most = max(d.most, q.AckFloor.Stream)
		if name, _ := layout.LaneOf(q.Name); d.served != nil && !d.served[name] && (q.NumPending > 0 || q.NumAckPending > 0) {
			d.unserved = true
		}
	}
	return nil
}

// any reports whether a message may be stranded, or in a queue that is not served. Usually the stream
// has no messages at or below the floors, so there is nothing to list.
func (d *strandedFinder) any(ctx context.Context) (bool, error) {
	if err := d.readFloors(ctx); err != nil || d.unserved || d.most == 0 {
		return d.unserved, err
	}
	info, err := d.s.StreamInfo(ctx, "look at "+layout.Title(d.stream), d.stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return true, nil // the listing waits for the stream until ctx ends
	case err != nil:
		return false, err
	}
	return info.State.FirstSeq <= d.most, nil
}

// mark sets w.Stranded and w.Unserved.
func (d *strandedFinder) mark(ctx context.Context, w *WaitingSlot) error {
	if w.Timer {
		return nil
	}
	w.Unserved = d.served != nil && !d.served[w.Queue]
	if err := d.readFloors(ctx); err != nil {
		return err
	}
	w.Stranded = w.Sequence <= d.floors[w.lane]
	return nil
}
