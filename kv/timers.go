package kv

import (
	"context"
	"crypto/rand"
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

// Timers are triggered runs that are not due yet. The server itself keeps the time: each
// timer is a message with a schedule. When it is due, the server replaces it with a
// message for the queue, so no node needs to be alive then. The methods of Timers are safe
// for concurrent use.
//
// A fired message has no message ID, so the server does not fold duplicates. The ledger
// settles a run that is delivered twice.
type Timers struct{ s *Store }

// Timer is a triggered run that starts at the time Due.
type Timer struct {
	core.Message
	Queue   string
	Payload []byte
}

// ErrNoTimers reports that the namespace has no stream of timers, because it was created
// on a server without message schedules.
var ErrNoTimers = errors.New("no timers")

// LatestTimer is the exclusive upper bound of a timer's time. The server counts
// nanoseconds since 1970 in 64 bits.
var LatestTimer = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Headers of the server's message schedules.
const (
	headerSchedule = "Nats-Schedule"
	headerTarget   = "Nats-Schedule-Target"
)

// Set stores the timer if revision is the last one of its slot, and returns the new
// revision. Pass 0 for a new timer, or the revision from Read to replace one. The error is
// job.ErrConflict if the slot has another timer, or if the timer to replace is gone. The
// error is job.ErrUnknown if ctx ended without an answer. In that case, set the timer
// again; that is safe. If the time has passed, the timer fires at once.
//
// If the server does not support message schedules, the error is errors.ErrUnsupported.
// If the namespace has no stream of timers, it is ErrNoTimers.
func (t *Timers) Set(ctx context.Context, timer Timer, revision uint64) (uint64, error) {
	switch {
	case timer.Slot.Token == "" || timer.Due.IsZero() || !timer.Due.Before(LatestTimer):
		return 0, fmt.Errorf("%w timer %s at %s: want a triggered run and a time before %s",
			job.ErrInvalid, timer.Slot, timer.Due.Format(time.RFC3339), LatestTimer.Format(time.RFC3339))
	case !t.s.schedules():
		return 0, fmt.Errorf("%w: future triggers need nats-server 2.12 or newer; this is %s", errors.ErrUnsupported, t.s.link().connectedServer().version)
	}
	if err := codec.ValidateName("queue", timer.Queue); err != nil {
		return 0, err
	}
	if err := t.s.takes(timer.Payload); err != nil {
		return 0, err
	}
	var ended func(bool, error)
	timer.Message, ended = t.s.traced(timer.Queue, timer.Message)
	won, err := await(func(told func(uint64, error)) { t.writing(ctx, timer, revision, told).send() })
	if hasCode(err, jetstream.JSErrCodeStreamNotFound) {
		err = t.missing()
	}
	ended(false, err)
	return won, err
}

// Read returns the slot's timer and its revision from the stream's leader. If there is no
// timer, or no stream of timers, the error is job.ErrNotFound.
func (t *Timers) Read(ctx context.Context, slot job.Slot) (Timer, uint64, error) {
	began, pause := time.Now(), newPause()
	for {
		e, err := t.s.last(ctx, t.s.timerStream(), t.subject(slot))
		switch {
		case err == nil:
			w, err := t.read(e)
			return Timer{w.Message, w.Queue, e.data}, e.revision, err
		case errors.Is(err, errNothing), hasCode(err, jetstream.JSErrCodeStreamNotFound):
			return Timer{}, 0, fmt.Errorf("timer %s: %w", slot, job.ErrNotFound)
		case classify(err) != unanswered, errors.Is(err, job.ErrDenied):
			return Timer{}, 0, fmt.Errorf("read timer %s: %w", slot, err)
		case !wait(ctx, pause.NextBackOff()):
			return Timer{}, 0, fmt.Errorf("read timer %s: %w (after %v): %w", slot, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
	}
}

// Cancel removes the slot's timer, if there is one, and the timers of its shards. It does
// not remove a fired message. To prevent a run, first record the slot's outcome, then
// cancel.
func (t *Timers) Cancel(ctx context.Context, slot job.Slot) error {
	err := t.s.ask(ctx, "cancel timer "+slot.ID(), t.s.api("STREAM.PURGE."+t.s.timerStream()), func(ctx context.Context) error {
		stream, err := t.s.js.Stream(ctx, t.s.timerStream())
		if err != nil {
			return err
		}
		subject := t.subject(slot)
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(subject+".>"))
	})
	if hasCode(err, jetstream.JSErrCodeStreamNotFound) {
		return nil
	}
	return err
}

// Waiting iterates over the timers, then over the fired ones that wait for a worker. A
// timer that fires in between may be returned twice. Its errors are those of
// Slots.Waiting. Without a stream of timers it returns nothing.
func (t *Timers) Waiting(ctx context.Context, f WaitingFilter) iter.Seq2[WaitingSlot, error] {
	prefix := t.s.namespace + ".timer."
	subjects := []string{prefix + "due." + anyIfEmpty(f.Queue) + "." + anyIfEmpty(f.Job)}
	if !f.Fired {
		subjects = append([]string{prefix + "set." + anyIfEmpty(f.Job) + ".>"}, subjects...)
	}
	return func(yield func(WaitingSlot, error) bool) {
		switch there, err := t.exist(ctx); {
		case err != nil:
			yield(WaitingSlot{}, err)
		case there:
			t.s.waiting(ctx, f, t.s.timerStream(), subjects, t.read)(yield)
		}
	}
}

func (t *Timers) exist(ctx context.Context) (bool, error) {
	err := t.s.ask(ctx, "look for "+title(t.s.timerStream()), t.s.api("STREAM.INFO."+t.s.timerStream()), func(ctx context.Context) error {
		_, err := t.s.js.Stream(ctx, t.s.timerStream())
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, err
}

// read decodes a timer or a fired message.
func (t *Timers) read(e entry) (WaitingSlot, error) {
	tokens := strings.Split(e.subject, ".")
	if tokens[2] == "due" {
		return readWaiting(e, tokens[3], tokens[4]) // namespace, "timer", "due", queue, job
	}
	var queue string
	if target := strings.Split(e.header.Get(headerTarget), "."); len(target) == 5 {
		queue = target[3]
	}
	w, err := readWaiting(e, queue, tokens[3]) // namespace, "timer", "set", job, token, perhaps shard
	w.Timer = true
	if err == nil && t.subject(w.Slot) != e.subject {
		err = fmt.Errorf("message %d on %s: %w timer: it names slot %q", e.revision, e.subject, job.ErrInvalid, w.Slot)
	}
	return w, err
}

func (t *Timers) subject(slot job.Slot) string {
	// The key is JOB.t.TOKEN with the token escaped. The key of a shard has one more token.
	return t.s.namespace + ".timer.set." + strings.Replace(slot.Key(), ".t.", ".", 1)
}

func (t *Timers) missing() error {
	return fmt.Errorf("%w: %s was not there when the namespace was made: %s creates it", ErrNoTimers, title(t.s.timerStream()), t.s.setupCommand())
}

// writing returns the write of a timer's message at revision.
func (t *Timers) writing(ctx context.Context, timer Timer, revision uint64, told func(uint64, error)) *writing {
	b := bucket{wire: t.s.wire, in: t.s.timerStream(), tellDenied: t.s.readOnly}
	w := b.writing(ctx, "", revision, told)
	w.title = "timer " + timer.Slot.ID()
	w.at = t.subject(timer.Slot)
	w.to = w.at
	w.data = append(w.data, timer.Payload...)
	timer.EachHeader(func(name, value string) {
		// Without a message ID, a cancelled timer can be set again at once.
		if name != core.HeaderMsgID {
			w.set(name, value)
		}
	})
	w.set(headerNonce, rand.Text())
	// The client's WithScheduleAt truncates fractions of a second, which fires early.
	w.set(headerSchedule, "@at "+timer.Due.UTC().Format(time.RFC3339Nano))
	w.set(headerTarget, t.s.namespace+".timer.due."+timer.Queue+"."+timer.Slot.Job)
	// If no responder exists, the stream is away or does not exist.
	w.absent = func(told func(error)) {
		go func() {
			if there, err := t.exist(ctx); err == nil && !there {
				told(jetstream.ErrStreamNotFound.APIError())
				return
			}
			told(nil)
		}()
	}
	return w
}
