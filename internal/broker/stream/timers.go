package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Timers are triggered runs that are not due yet. The server itself keeps the time: each
// timer is a message with a schedule. When it is due, the server replaces it with a
// message for the queue, so no node needs to be alive then. The methods of Timers are safe
// for concurrent use.
//
// A fired message has no message ID, so the server does not drop duplicates. If a run is
// delivered twice, both deliveries find the same record in the ledger, and only one claims it.
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
	case !t.s.Schedules():
		return 0, fmt.Errorf("%w: future triggers need nats-server 2.12 or newer; this is %s", errors.ErrUnsupported, t.s.Link().ConnectedServer().Version)
	}
	if err := codec.ValidateName("queue", timer.Queue); err != nil {
		return 0, err
	}
	if err := t.s.CheckPayload(timer.Payload); err != nil {
		return 0, err
	}
	var ended func(bool, error)
	timer.Message, ended = t.s.traced(timer.Queue, timer.Message)
	won, err := wire.Await(func(done func(uint64, error)) { t.writing(ctx, timer, revision, done).Send() })
	if wire.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
		err = t.missing()
	}
	ended(false, err)
	return won, err
}

// MaySet reports whether the login may set timers of a job. If that is not known, it returns true.
func (t *Timers) MaySet(name string) bool {
	return t.s.MayPublish(layout.TimersOf(t.s.Namespace, name))
}

// UnreadableTimerError reports a stored timer that cannot be decoded. It wraps job.ErrInvalid or
// job.ErrVersion.
type UnreadableTimerError struct {
	Slot job.Slot
	Err  error
}

// Error names the slot, and says what is wrong.
func (e *UnreadableTimerError) Error() string { return fmt.Sprintf("timer %s: %v", e.Slot, e.Err) }

// Unwrap returns Err.
func (e *UnreadableTimerError) Unwrap() error { return e.Err }

// Read returns the slot's timer and its revision from the stream's leader. If there is no
// timer, or no stream of timers, the error is job.ErrNotFound. If the timer cannot be decoded, the
// error is an *UnreadableTimerError.
func (t *Timers) Read(ctx context.Context, slot job.Slot) (Timer, uint64, error) {
	e, err := t.s.LastUntilAnswered(ctx, "timer "+slot.ID(), t.s.TimerStream(), t.subject(slot))
	if errors.Is(err, wire.ErrNothing) || wire.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
		return Timer{}, 0, fmt.Errorf("timer %s: %w", slot, job.ErrNotFound)
	}
	if err != nil {
		return Timer{}, 0, err
	}
	w, err := t.read(e)
	if err != nil {
		return Timer{}, e.Revision, &UnreadableTimerError{slot, err}
	}
	return Timer{w.Message, w.Queue, e.Data}, e.Revision, nil
}

// Latest returns the timers of the named slots that exist, with few requests. Any replica
// answers, so a new timer may be missing.
func (t *Timers) Latest(ctx context.Context, slots []job.Slot) (map[job.Slot]Timer, error) {
	all := map[job.Slot]Timer{}
	switch exists, err := t.exist(ctx); {
	case err != nil:
		return nil, err
	case !exists:
		return all, nil
	}
	prefix := t.s.Namespace + ".timer.set."
	b := wire.Bucket{Wire: t.s.Wire, Name: t.s.TimerStream(), Stream: t.s.TimerStream(), Root: prefix}
	err := b.EachLatest(ctx, len(slots), func(i int) string { return strings.TrimPrefix(t.subject(slots[i]), prefix) }, func(found []wire.Entry) {
		for _, e := range found {
			if w, err := t.read(e); err == nil {
				all[w.Slot] = Timer{w.Message, w.Queue, e.Data}
			}
		}
	})
	return all, err
}

// Cancel removes the slot's timer, if there is one, and the timers of its shards. It does
// not remove a fired message. To prevent a run, first record the slot's outcome, then
// cancel.
func (t *Timers) Cancel(ctx context.Context, slot job.Slot) error {
	err := t.s.Ask(ctx, "cancel timer "+slot.ID(), t.s.API("STREAM.PURGE."+t.s.TimerStream()), func(ctx context.Context) error {
		stream, err := t.s.JS.Stream(ctx, t.s.TimerStream())
		if err != nil {
			return err
		}
		subject := t.subject(slot)
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(subject+".>"))
	})
	if wire.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
		return nil
	}
	return err
}

// Waiting iterates over the timers, then over the fired ones that wait for a worker. A
// timer that fires in between may be returned twice. Its errors are those of
// Slots.Waiting. Without a stream of timers it returns nothing.
func (t *Timers) Waiting(ctx context.Context, f WaitingFilter) iter.Seq2[WaitingSlot, error] {
	prefix := t.s.Namespace + ".timer."
	subjects := []string{prefix + "due." + cmp.Or(f.Queue, "*") + "." + cmp.Or(f.Job, "*")}
	if !f.Fired {
		subjects = append([]string{prefix + "set." + cmp.Or(f.Job, "*") + ".>"}, subjects...)
	}
	return func(yield func(WaitingSlot, error) bool) {
		switch exists, err := t.exist(ctx); {
		case err != nil:
			yield(WaitingSlot{}, err)
		case exists:
			t.s.waiting(ctx, f, t.s.TimerStream(), subjects, t.read)(yield)
		}
	}
}

// exist reports whether the namespace has a stream of timers.
func (t *Timers) exist(ctx context.Context) (bool, error) {
	_, err := t.s.StreamInfo(ctx, "look for "+layout.Title(t.s.TimerStream()), t.s.TimerStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, err
}

// read decodes a timer or a fired message.
func (t *Timers) read(e wire.Entry) (WaitingSlot, error) {
	tokens := strings.Split(e.Subject, ".")
	if tokens[2] == "due" {
		return readWaiting(e, tokens[3], tokens[4]) // namespace, "timer", "due", queue, job
	}
	var queue string
	if target := strings.Split(e.Header.Get(headerTarget), "."); len(target) == 5 {
		queue = target[3]
	}
	w, err := readWaiting(e, queue, tokens[3]) // namespace, "timer", "set", job, token, perhaps shard
	w.Timer = true
	if err == nil && t.subject(w.Slot) != e.Subject {
		err = fmt.Errorf("message %d on %s: %w timer: it names slot %q", e.Revision, e.Subject, job.ErrInvalid, w.Slot)
	}
	return w, err
}

func (t *Timers) subject(slot job.Slot) string { return core.TimerSubject(t.s.Namespace, slot) }

// missing returns the error for a namespace without a stream of timers.
func (t *Timers) missing() error {
	return fmt.Errorf("%w: %s did not exist when the namespace was created: %s creates it", ErrNoTimers, layout.Title(t.s.TimerStream()), t.s.SetupCommand())
}

// writing returns the write of a timer's message at revision.
func (t *Timers) writing(ctx context.Context, timer Timer, revision uint64, done func(uint64, error)) *wire.Writing {
	b := wire.Bucket{Wire: t.s.Wire, Stream: t.s.TimerStream(), FailDenied: t.s.FailDenied}
	w := b.Writing(ctx, "", revision, done)
	w.Title = "timer " + timer.Slot.ID()
	w.At = t.subject(timer.Slot)
	w.To = w.At
	w.Data = append(w.Data, timer.Payload...)
	timer.EachHeader(func(name, value string) {
		// Without a message ID, a cancelled timer can be set again at once.
		if name != core.HeaderMsgID {
			w.Set(name, value)
		}
	})
	w.Set(wire.HeaderNonce, rand.Text())
	// The client's WithScheduleAt truncates fractions of a second, so the timer would fire early.
	w.Set(headerSchedule, "@at "+timer.Due.UTC().Format(time.RFC3339Nano))
	w.Set(headerTarget, t.s.Namespace+".timer.due."+timer.Queue+"."+timer.Slot.Job)
	// If the server answers that nothing listens on the subject, the stream has no leader now,
	// or it does not exist. Absent finds out which.
	w.Absent = func(report func(error)) {
		go func() {
			if exists, err := t.exist(ctx); err == nil && !exists {
				report(jetstream.ErrStreamNotFound.APIError())
				return
			}
			report(nil)
		}()
	}
	return w
}
