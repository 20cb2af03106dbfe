package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// Slots is the stream of slots to run. Its methods are safe for concurrent use.
type Slots struct{ s *Store }

// Send publishes a slot's message and returns without waiting. The message ID is the
// slot's ID. A slot that is offered again has an ID of its own; see core.Message.Offer.
// Unless Send returns an error, it calls answered once, from another goroutine, even if the broker
// does not answer. answered must not block. duplicate reports that the stream already had
// the message. If the error wraps job.ErrUnknown, send the same message again; this is also
// the error while another producer has a message with the same ID in flight. Do not
// modify the payload before answered is called.
//
// The caller must bound how many messages are in flight.
func (l *Slots) Send(queue string, m core.Message, payload []byte, answered func(duplicate bool, err error)) error {
	return l.send(queue, m, payload, nil, answered)
}

// send is Send. Before it calls answered without an error, it sets at, if that is not nil.
func (l *Slots) send(queue string, m core.Message, payload []byte, at *uint64, answered func(duplicate bool, err error)) error {
	if err := codec.ValidateName("queue", queue); err != nil {
		return err
	}
	if m.Slot.Token != "" {
		if err := l.s.CheckPayload(payload); err != nil {
			return err
		}
	}
	m, ended := l.s.traced(queue, m)
	p := l.publication()
	p.queue, p.message, p.payload, p.at, p.done, p.ended = queue, m, payload, at, answered, ended
	p.send()
	return nil
}

// Publish is Send for callers that wait. It returns the broker's answer, or job.ErrUnknown if ctx ends
// first.
func (l *Slots) Publish(ctx context.Context, queue string, m core.Message, payload []byte) (duplicate bool, err error) {
	_, duplicate, err = l.publish(ctx, queue, m, payload)
	return duplicate, err
}

// publish is Publish. It also returns the sequence at which the stream has the message.
func (l *Slots) publish(ctx context.Context, queue string, m core.Message, payload []byte) (sequence uint64, duplicate bool, err error) {
	var dropped bool // the results are not written after publish has returned
	at := new(uint64)
	done := make(chan error, 1)
	err = l.send(queue, m, payload, at, func(duplicate bool, err error) {
		dropped = duplicate
		done <- err
	})
	if err != nil {
		return 0, false, err
	}
	select {
	case err := <-done:
		return *at, dropped, err
	case <-ctx.Done():
		return 0, false, fmt.Errorf("publish %s: %w: it may have happened: %w", m.Slot, job.ErrUnknown, context.Cause(ctx))
	}
}

// traced starts the trace of a publication.
func (s *Store) traced(queue string, m core.Message) (_ core.Message, ended func(duplicate bool, err error)) {
	if s.Trace != nil {
		traced := m // keeps m off the heap while tracing is off
		ended = s.Trace(queue, &traced)
		m = traced
	}
	if ended == nil {
		ended = func(bool, error) {}
	}
	return m, ended
}

// Put publishes a slot's message as Publish does, and repeats it until the broker stores or
// refuses it. If Put returns no error, the broker has the message, from this call or an earlier one. If
// ctx ends first, the error wraps job.ErrUnknown, and also job.ErrFull if an attempt found no room.
// If the server does not permit the message, Put does not repeat it.
func (l *Slots) Put(ctx context.Context, queue string, m core.Message, payload []byte) (duplicate bool, err error) {
	_, duplicate, err = l.PutAt(ctx, queue, m, payload)
	return duplicate, err
}

// PutAt is Put. It also returns the sequence at which the stream has the message: of a duplicate, that of
// the earlier message.
func (l *Slots) PutAt(ctx context.Context, queue string, m core.Message, payload []byte) (sequence uint64, duplicate bool, err error) {
	pause := wire.NewBackoff()
	var full error
	for {
		sequence, duplicate, err = l.publish(ctx, queue, m, payload)
		if errors.Is(err, job.ErrFull) {
			full = err
		}
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) || !wire.Wait(ctx, pause.NextBackOff()) {
			if full != nil && errors.Is(err, job.ErrUnknown) {
				return 0, false, full
			}
			return sequence, duplicate, err
		}
	}
}

// At returns the message at a sequence of the stream, from any replica. If there is none, because it was
// acked or the replica lags, the error is job.ErrNotFound.
func (l *Slots) At(ctx context.Context, sequence uint64) (WaitingSlot, error) {
	found, _, err := l.s.Get(ctx, l.s.SlotStream(), map[string]any{"seq": sequence, "batch": 1})
	if err != nil {
		return WaitingSlot{}, fmt.Errorf("read message %d: %w", sequence, err)
	}
	if len(found) == 0 || found[0].Revision != sequence {
		return WaitingSlot{}, fmt.Errorf("message %d: %w", sequence, job.ErrNotFound)
	}
	return l.read(found[0])
}

func (l *Slots) read(e wire.Entry) (WaitingSlot, error) {
	tokens := strings.Split(e.Subject, ".") // namespace, "slot", queue, job
	return readWaiting(e, tokens[2], tokens[3])
}

// Connected reports whether the store has a connection to publish on now.
func (l *Slots) Connected() bool { return l.s.Connected() }

func (l *Slots) subject(lane, job string) string {
	return l.s.Namespace + ".slot." + lane + "." + job
}

// subjectOf returns the subject of a slot's message in a queue.
func (l *Slots) subjectOf(queue string, m *core.Message) string {
	if m.InBulk() {
		queue = layout.BulkLane(queue)
	}
	return l.subject(queue, m.Slot.Job)
}

// WaitingFilter selects messages. Its zero value selects all.
type WaitingFilter struct {
	Queue, Job string

	// Fired leaves out the timers that are not due. There may be millions of them, and
	// workers receive none of them yet.
	Fired bool

	// Stranded selects only stranded messages; see WaitingSlot.Stranded. If there are
	// none, the filter costs next to nothing.
	Stranded bool

	// Served, if not nil, has the queues with a live worker. It sets WaitingSlot.Unserved. With Stranded,
	// it selects the messages of other queues too.
	Served map[string]bool

	// Before leaves out messages that were published at this time or later. If there are no
	// older ones, the filter costs next to nothing. Zero: it leaves out none.
	Before time.Time

	// Newest iterates over the stream of slots newest first, and reads only as much of it as the caller
	// takes. It has no effect on timers, and excludes Stranded and Before.
	Newest bool

	// Bytes ends the iteration over each kind of messages (timers, fired timers, slots) after messages of
	// about that size. Zero: there is no limit.
	Bytes int

	// Complete makes the pass fail if it may miss a message: any replica answers it, and a
	// replica may lag. The stream's leader first counts the messages. If the pass finds
	// fewer, it ends with an error that wraps job.ErrUnknown.
	Complete bool
}

// WaitingSlot is a message in the stream. Its slot usually has no outcome, but a worker may have
// recorded one and not acked the message yet.
type WaitingSlot struct {
	core.Message
	Queue string
	lane  string // of the queue

	// Sequence is the message's stream sequence, Published its timestamp from the
	// broker.
	Sequence  uint64
	Published time.Time

	// Payload is the message's body.
	Payload []byte

	// Timer is true for a triggered run that is not due yet. Due is its time,
	// and Published is when it was set.
	Timer bool

	// Stranded is true if the server no longer delivers the message; see strandedFinder. It is a
	// hint, like every field here. If the login may not list consumers, it is false.
	Stranded bool

	// Unserved is true if the queue of the message is not among WaitingFilter.Served.
	Unserved bool
}

// Size returns about how many bytes the broker has sent for the message.
func (w WaitingSlot) Size() int { return len(w.Payload) + messageOverhead }

// messageOverhead is about the size of a message's subject and headers.
const messageOverhead = 400

// Waiting iterates over the messages in the stream, oldest first. If a message cannot be
// read, the error wraps job.ErrInvalid and the iteration goes on. Any other error ends
// it.
func (l *Slots) Waiting(ctx context.Context, f WaitingFilter) iter.Seq2[WaitingSlot, error] {
	subjects := []string{l.subject("*", cmp.Or(f.Job, "*"))}
	if f.Queue != "" {
		subjects = []string{l.subject(f.Queue, cmp.Or(f.Job, "*")), l.subject(layout.BulkLane(f.Queue), cmp.Or(f.Job, "*"))}
	}
	return l.s.waiting(ctx, f, l.s.SlotStream(), subjects, l.read)
}

// waiting iterates over the messages of a stream, one subject after the other.
func (s *Store) waiting(ctx context.Context, f WaitingFilter, stream string, subjects []string, read func(wire.Entry) (WaitingSlot, error)) iter.Seq2[WaitingSlot, error] {
	return func(yield func(WaitingSlot, error) bool) {
		for _, name := range []string{f.Queue, f.Job} {
			if err := codec.ValidateName("queue or job", name); name != "" && err != nil {
				yield(WaitingSlot{}, err)
				return
			}
		}
		strand := strandedFinder{s: s, stream: stream, served: f.Served}
		if f.Stranded {
			switch any, err := strand.any(ctx); {
			case err != nil:
				yield(WaitingSlot{}, err)
				return
			case !any:
				return
			}
		}
		for _, subject := range subjects {
			if !f.Before.IsZero() {
				switch oldest, err := s.First(ctx, stream, subject); {
				case err != nil:
					yield(WaitingSlot{}, err)
					return
				case len(oldest) == 0 || !oldest[0].Time.Before(f.Before):
					continue
				}
			}
			missing, err := s.countComplete(ctx, f, stream, subject)
			if err != nil {
				yield(WaitingSlot{}, err)
				return
			}
			size := 0
			for e, err := range s.messages(ctx, f, stream, subject) {
				if err != nil {
					yield(WaitingSlot{}, err)
					return
				}
				missing--
				if size += len(e.Data) + messageOverhead; f.Bytes > 0 && size > f.Bytes {
					break
				}
				if !f.Before.IsZero() && !e.Time.Before(f.Before) {
					break // those that follow are younger
				}
				w, err := read(e)
				if f.Queue != "" && w.Queue != f.Queue {
					continue
				}
				if lost := strand.mark(ctx, &w); lost != nil {
					yield(WaitingSlot{}, lost)
					return
				}
				if f.Stranded && !w.Stranded && !w.Unserved {
					if w.Sequence > strand.most && !strand.unserved {
						break // no later message on this subject is stranded
					}
					continue
				}
				if !yield(w, err) {
					return
				}
			}
			if missing > 0 {
				yield(WaitingSlot{}, fmt.Errorf("list %s: %w: its leader has %d more messages on %s", stream, job.ErrUnknown, missing, subject))
				return
			}
		}
	}
}

// messages iterates over the messages on a subject, in the order that the filter asks for.
func (s *Store) messages(ctx context.Context, f WaitingFilter, stream, subject string) iter.Seq2[wire.Entry, error] {
	if f.Bytes > 0 {
		few := s.Wire
		few.BatchBytes = max(f.Bytes/4, 1)
		return few.All(ctx, stream, subject, time.Time{})
	}
	if !f.Newest || stream == s.TimerStream() {
		return s.All(ctx, stream, subject, time.Time{})
	}
	return func(yield func(wire.Entry, error) bool) {
		for found, err := range s.Backward(ctx, stream, subject) {
			if err != nil {
				yield(wire.Entry{}, err)
				return
			}
			for _, e := range found {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// countComplete returns how many messages the pass must find at least, or 0 without f.Complete.
func (s *Store) countComplete(ctx context.Context, f WaitingFilter, stream, subject string) (n int, err error) {
	if !f.Complete {
		return 0, nil
	}
	counts, err := s.Counts(ctx, stream, subject)
	for _, on := range counts {
		n += int(on)
	}
	return n, err
}

// readWaiting decodes a stored message. lane and name come from the message's subject.
func readWaiting(e wire.Entry, lane, name string) (WaitingSlot, error) {
	w := WaitingSlot{lane: lane, Sequence: e.Revision, Published: e.Time, Payload: e.Data}
	w.Queue, _ = layout.LaneOf(lane)
	var err error
	w.Message, err = core.ParseMessage(e.Header)
	if err == nil && w.Slot.Job != name {
		err = fmt.Errorf("%w message: %w: it names slot %q", job.ErrInvalid, exchange.ErrContradicts, w.Slot)
	}
	if err != nil {
		w.Message = core.Message{} // do not trust any field of it
		err = fmt.Errorf("message %d on %s: %w", e.Revision, e.Subject, err)
	}
	return w, err
}
