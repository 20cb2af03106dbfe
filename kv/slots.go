package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Slots is the stream of slots to run. Its methods are safe for concurrent use.
type Slots struct{ s *Store }

// Send sends a slot's message on its way, with the slot's ID as its message ID (or
// one of its own, see job.Message.Offer), and returns without waiting. Unless it
// returns an error, answered is called once, from another goroutine and within some
// seconds; it must not block. duplicate says that the stream has had the message
// already. An error that wraps job.ErrUnknown is settled by sending the same message
// again; that includes a copy of another producer in flight. The payload must not be
// written to before.
//
// How many are under way is for the caller to bound.
func (l *Slots) Send(queue string, m core.Message, payload []byte, answered func(duplicate bool, err error)) error {
	if err := codec.ValidateName("queue", queue); err != nil {
		return err
	}
	if m.Slot.Token != "" {
		if err := l.s.takes(payload); err != nil {
			return err
		}
	}
	m, ended := l.s.traced(queue, m)
	p := l.publication()
	p.queue, p.message, p.payload, p.answered, p.ended = queue, m, payload, answered, ended
	l.s.transport.ask(&p.question)
	return nil
}

// Publish is Send for those who wait: the returned function returns what was
// answered, or job.ErrUnknown when ctx ends before.
func (l *Slots) Publish(queue string, m core.Message, payload []byte) (wait func(context.Context) (duplicate bool, err error), err error) {
	var folded bool
	var failed error
	done := make(chan struct{})
	err = l.Send(queue, m, payload, func(duplicate bool, err error) {
		folded, failed = duplicate, err
		close(done)
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		select {
		case <-done:
			return folded, failed
		case <-ctx.Done():
			return false, fmt.Errorf("publish %s: %w: %w", m.Slot, job.ErrUnknown, context.Cause(ctx))
		}
	}, nil
}

// traced begins the trace of a publication.
func (s *Store) traced(queue string, m core.Message) (_ core.Message, ended func(duplicate bool, err error)) {
	if s.trace != nil {
		traced := m // m itself stays off the heap where nothing is traced
		ended = s.trace(queue, &traced)
		m = traced
	}
	if ended == nil {
		ended = func(bool, error) {}
	}
	return m, ended
}

// Put publishes a slot's message as Publish does, and again until it is answered:
// the broker has it then, from this call or an earlier one. If ctx ends before, the
// error wraps job.ErrUnknown.
func (l *Slots) Put(ctx context.Context, queue string, m core.Message, payload []byte) error {
	pause := newPause()
	var full error
	for {
		answer, err := l.Publish(queue, m, payload)
		if err == nil {
			_, err = answer(ctx)
		}
		if errors.Is(err, job.ErrFull) {
			full = err
		}
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) || !wait(ctx, pause.NextBackOff()) {
			if full != nil && errors.Is(err, job.ErrUnknown) {
				return full
			}
			return err
		}
	}
}

// Connected reports whether there is a connection to publish on now.
func (l *Slots) Connected() bool { return l.s.Connected() }

func (l *Slots) subject(queue, job string) string {
	return l.s.namespace + ".slot." + queue + "." + job
}

// WaitingFilter narrows what waits. Its zero value takes everything.
type WaitingFilter struct {
	Queue, Job string

	// Fired leaves out the timers whose time has not come: there may be millions,
	// and none is a message for a worker.
	Fired bool

	// Stranded leaves out all that is not; see WaitingSlot.Stranded. It costs next to
	// nothing where nothing is.
	Stranded bool

	// Whole says that nothing may be missing. A pass is of what any replica has; the
	// stream's leader is asked first how much there is, and if less came the pass ends
	// with an error that wraps job.ErrUnknown.
	Whole bool
}

// WaitingSlot is a message in the stream: a slot that has no outcome yet.
type WaitingSlot struct {
	core.Message
	Queue string

	// Sequence is the message's place in its stream, Published the broker's
	// timestamp of it.
	Sequence  uint64
	Published time.Time

	// Payload is the message's body.
	Payload []byte

	// Timer says that this is a triggered run whose time, Due, has not come:
	// Published is when it was set.
	Timer bool

	// Stranded says that the server gives the message to nobody any more; see
	// strand. It is a hint, as all of this, and false for who may not ask.
	Stranded bool
}

// Waiting passes over the messages in the stream, oldest first. A message that
// cannot be read comes with an error that wraps job.ErrInvalid and does not end
// the pass; any other error does.
func (l *Slots) Waiting(ctx context.Context, f WaitingFilter) iter.Seq2[WaitingSlot, error] {
	return l.s.waiting(ctx, f, l.s.slotStream(), []string{l.subject(anyIfEmpty(f.Queue), anyIfEmpty(f.Job))}, func(e entry) (WaitingSlot, error) {
		tokens := strings.Split(e.subject, ".") // namespace, "slot", queue, job
		return readWaiting(e, tokens[2], tokens[3])
	})
}

// waiting passes over the messages of a stream on several subjects, one after the
// other.
func (s *Store) waiting(ctx context.Context, f WaitingFilter, stream string, subjects []string, read func(entry) (WaitingSlot, error)) iter.Seq2[WaitingSlot, error] {
	return func(yield func(WaitingSlot, error) bool) {
		for _, name := range []string{f.Queue, f.Job} {
			if err := codec.ValidateName("queue or job", name); name != "" && err != nil {
				yield(WaitingSlot{}, err)
				return
			}
		}
		strand := s.strand(stream)
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
			missing, err := s.countWhole(ctx, f, stream, subject)
			if err != nil {
				yield(WaitingSlot{}, err)
				return
			}
			for e, err := range s.all(ctx, stream, subject, time.Time{}) {
				if err != nil {
					yield(WaitingSlot{}, err)
					return
				}
				missing--
				w, err := read(e)
				if f.Queue != "" && w.Queue != f.Queue {
					continue
				}
				if lost := strand.mark(ctx, &w); lost != nil {
					yield(WaitingSlot{}, lost)
					return
				}
				if f.Stranded && !w.Stranded {
					if strand.beyond(w) {
						break
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

// countWhole is how many messages there are at least, if that is to be known.
func (s *Store) countWhole(ctx context.Context, f WaitingFilter, stream, subject string) (n int, err error) {
	if !f.Whole {
		return 0, nil
	}
	counts, err := s.counts(ctx, stream, subject)
	for _, on := range counts {
		n += int(on)
	}
	return n, err
}

// counts is how many messages the stream's leader has, by subject, of those that
// match.
func (s *Store) counts(ctx context.Context, stream, filter string) (counts map[string]uint64, err error) {
	err = s.ask(ctx, "count what waits in "+stream, s.api("STREAM.INFO."+stream), func(ctx context.Context) error {
		handle, err := s.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info, err := handle.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err == nil {
			counts = info.State.Subjects
		}
		return err
	})
	return counts, err
}

// readWaiting reads a message that a stream holds for the queue and job that its
// subject names.
func readWaiting(e entry, queue, name string) (WaitingSlot, error) {
	w := WaitingSlot{Queue: queue, Sequence: e.revision, Published: e.time, Payload: e.data}
	var err error
	w.Message, err = core.ParseMessage(e.header)
	if err == nil && w.Slot.Job != name {
		err = fmt.Errorf("%w message: %w: it names slot %q", job.ErrInvalid, core.ErrContradicts, w.Slot)
	}
	if err != nil {
		w.Message = core.Message{} // what it says of a slot counts for nothing
		err = fmt.Errorf("message %d on %s: %w", e.revision, e.subject, err)
	}
	return w, err
}

// Waiting passes over all that waits: the timers, what of them has fired, and the
// stream of slots. Errors are those of Slots.Waiting.
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

func anyIfEmpty(token string) string {
	if token == "" {
		return "*"
	}
	return token
}
