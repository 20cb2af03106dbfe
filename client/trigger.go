package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// TriggerOptions describe a run of a job outside its plan. The zero value is a new run, at
// once, with the job's own payload.
type TriggerOptions struct {
	// Key names the run: at most job.MaxToken bytes of text; see [job.ValidateToken]. All orders
	// with the same job and key are one run, for as long as the ledger keeps its record. Empty: a
	// random key, so that each order is a new run.
	Key string

	// At is when to run. If it is zero or not in the future, the run starts at once, and is due
	// when it is ordered. The NATS server keeps a later run until it is due, which needs version
	// 2.12 or newer.
	At time.Time

	// Payload is passed to the handler unchanged. It is any JSON of at most job.MaxPayload
	// bytes. Nil: the job's payload.
	Payload json.RawMessage
}

// Validate returns an error that wraps job.ErrInvalid if an option is invalid. It needs no
// broker.
func (o TriggerOptions) Validate() error {
	if o.Key != "" {
		if err := job.ValidateToken(o.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	switch {
	case len(o.Payload) > job.MaxPayload:
		return fmt.Errorf("%w payload: %d bytes, must be at most %d", job.ErrInvalid, len(o.Payload), job.MaxPayload)
	case len(o.Payload) > 0 && !(json.Valid(o.Payload) && utf8.Valid(o.Payload)):
		return fmt.Errorf("%w payload: it is not JSON in UTF-8", job.ErrInvalid)
	case !o.At.Before(stream.LatestTimer):
		return fmt.Errorf("%w time %s: must be before %s", job.ErrInvalid, o.At.Format(time.RFC3339), stream.LatestTimer.Format(time.RFC3339))
	}
	return nil
}

// slot names the run that o orders. Without a key, each call names another run.
func (o TriggerOptions) slot(name string) job.Slot {
	return job.Slot{Job: name, Token: cmp.Or(o.Key, rand.Text())}
}

// Run is a run that was triggered.
type Run struct {
	// Slot names the run. Its Token is the key, and its ID the run's only name.
	Slot job.Slot

	// New reports that this order created the run. Otherwise the run existed, and keeps the
	// time and payload of its first order. A run that waits for its first start may be reported
	// as new again in two cases. Either more than 10,000 runs of the job have waited for longer.
	// Or the login may not list what waits (the role caller), and the run was ordered longer ago
	// than the duplicate window (2 minutes by default), or was ordered for a time that has come.
	// It runs once all the same. If the broker stored the run and its answer was lost, the run may
	// be reported as not new.
	New bool

	// State is job.Pending while the run waits, and then the state of its record.
	State job.State

	// Queue is the queue whose workers run it. Due is the time for which it was ordered, or zero if
	// it was to start at once.
	Queue string
	Due   time.Time

	// MovedFrom is the queue for which the run was ordered before. It is set if the job's queue
	// has changed, and this order moved the run to Queue.
	MovedFrom string

	client *Client
}

// ID returns the slot ID of the run, like "report:@order-4711".
func (r Run) ID() string { return r.Slot.ID() }

// Trigger orders one run of a job. A paused job can be triggered too, since a pause only
// stops its schedule. If ctx carries a span of OpenTelemetry, the run belongs to its trace.
//
// Trigger returns when the broker has stored the run, or has it already. If ctx ends before
// that is known, the error wraps job.ErrUnknown: repeat the order with the same key to
// settle it. If there is no such job, the error wraps job.ErrNotFound. If the server is too
// old for triggers in the future, it wraps errors.ErrUnsupported.
func (c *Client) Trigger(ctx context.Context, name string, o TriggerOptions) (Run, error) {
	if err := codec.ValidateName("job", name); err != nil {
		return Run{}, err
	}
	if err := o.Validate(); err != nil {
		return Run{}, err
	}
	slot := o.slot(name)
	if err := c.cfg.Joined(ctx, name); err != nil {
		return Run{}, fmt.Errorf("trigger job %s: %w", name, err)
	}
	run, at, err := c.readAndTrigger(ctx, slot, o)
	if err == nil && run.New {
		c.ordered(ctx, "trigger", job.Event{ID: slot.ID(), Job: name, Time: at})
	}
	return run, err
}

// readAndTrigger reads what is stored about the run and orders it, until the run does not change in
// between. at is the broker's time, or zero if nothing depends on it. The caller publishes the event.
func (c *Client) readAndTrigger(ctx context.Context, slot job.Slot, o TriggerOptions) (run Run, at time.Time, err error) {
	for all := false; ; {
		stored, err := c.readRun(ctx, slot, o, all)
		if err != nil {
			return Run{}, at, err
		}
		run, err := c.trigger(ctx, slot, o, stored)
		c.cfg.Alive()
		if errors.Is(err, errBegun) {
			all = true
			continue
		}
		folded := err == nil && !run.New && stored.record == nil && stored.timer == nil && stored.waiting == nil
		if folded && !all && c.editedLately(stored) {
			all = true // the run may wait in a former queue of the job
			continue
		}
		// A conflict means that the timer was set, moved or fired meanwhile: read again.
		if !errors.Is(err, job.ErrConflict) {
			run.client = c
			return run, stored.now, err
		}
	}
}

// errBegun reports that the stream has dropped the message of a run's last shard as a copy of a recent
// one. Unless young messages were looked for, it is not known whether the other shards are there, and
// which payload they have.
var errBegun = errors.New("another order has begun the run")

// trigger publishes the run, or sets its timers, unless the run exists. Reading first only
// saves messages: the claim of the worker ensures that no run starts twice.
func (c *Client) trigger(ctx context.Context, slot job.Slot, o TriggerOptions, s storedRun) (Run, error) {
	j := s.entry.Job.WithDefaults()
	t := Run{Slot: slot, State: job.Pending, Queue: j.Queue}
	var err error
	switch {
	case s.record != nil:
		t.State, t.Queue, t.Due = s.record.State, s.record.Queue, s.record.Due
	case s.waiting != nil:
		w := s.waiting
		t.Queue, t.Due = w.Queue, w.Due
		if w.Queue != j.Queue && !o.At.After(s.now) {
			var folded bool
			folded, err = c.repeat(ctx, lastFirst(slot, w.Slot.Shards), j.Queue, *w)
			if !folded || !c.editedLately(s) { // a while after the edit, the stream folds only a repeated move
				t.Queue, t.MovedFrom = j.Queue, w.Queue
			}
		}
	case s.timer != nil:
		t.Due = s.timer.Due
		if s.timer.Queue != j.Queue {
			t.MovedFrom = s.timer.Queue
			err = c.move(ctx, lastFirst(slot, s.timer.Slot.Shards), j.Queue)
		}
	default:
		return c.order(ctx, slot, o, s)
	}
	return t, err
}

// order publishes a run that does not exist, or sets its timers. If an earlier order has published or
// set some of its shards and then failed, the others get the time and the payload of that order.
//
// A run of several shards has a message or timer for each. The first shard is published last:
// if it exists, all do.
func (c *Client) order(ctx context.Context, slot job.Slot, o TriggerOptions, s storedRun) (Run, error) {
	j := s.entry.Job.WithDefaults()
	payload := o.Payload
	if len(payload) == 0 {
		payload = j.Payload
	}
	later := o.At.After(s.now)
	if !later {
		o.At = time.Time{} // the run was not late, nor past its deadline, before it was ordered
	}
	t := Run{Slot: slot, State: job.Pending, New: true, Queue: j.Queue, Due: o.At}
	all := lastFirst(slot, j.Shards)
	m := core.Message{JobRevision: s.entry.Revision, Node: c.cfg.Operator, Due: o.At, Traceparent: tracing.Traceparent(ctx)}
	if w := s.begun; w != nil {
		// The order that published it has failed, or goes on at the same time. It was for now, or its timer has fired.
		t.New, t.Due = !later && bytes.Equal(payload, w.Payload), w.Due
		m, all, later, payload = w.Message, lastFirst(slot, w.Slot.Shards), false, w.Payload
	}
	for i, shard := range all {
		m.Slot = shard
		if !later {
			folded, err := c.publish(ctx, j.Queue, m, payload)
			switch {
			case err != nil:
				return t, err
			case !folded || o.Key == "": // a random key can only fold with a copy of this order
			case i == 0 && len(all) > 1 && s.begun == nil && !s.all:
				return t, errBegun
			case i == len(all)-1:
				t.New = false
			}
			continue
		}
		_, err := c.cfg.Timers.Set(ctx, stream.Timer{Message: m, Queue: j.Queue, Payload: payload}, 0)
		if errors.Is(err, job.ErrConflict) && i < len(all)-1 {
			var set *stream.Timer
			if set, err = c.setBefore(ctx, shard, j.Queue); err == nil {
				t.New = t.New && set.Due.Equal(m.Due) && bytes.Equal(set.Payload, payload)
				m, payload, t.Due = set.Message, set.Payload, set.Due
			}
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// setBefore returns the timer of a shard that another order has set, after moving it to the queue. If it
// is gone or has changed, the error is job.ErrConflict.
func (c *Client) setBefore(ctx context.Context, shard job.Slot, queue string) (*stream.Timer, error) {
	if err := c.move(ctx, []job.Slot{shard}, queue); err != nil {
		return nil, err
	}
	timer, _, err := c.timer(ctx, shard)
	if timer == nil && err == nil {
		err = job.ErrConflict
	}
	return timer, err
}

// lastFirst returns the shards of a run, the first one last.
func lastFirst(run job.Slot, shards int) []job.Slot {
	all := shardsOf(run, shards)
	slices.Reverse(all)
	return all
}

// move moves the run's timers to another queue. It returns job.ErrConflict if the last of
// them has changed meanwhile.
func (c *Client) move(ctx context.Context, shards []job.Slot, queue string) error {
	for i, shard := range shards {
		timer, revision, err := c.timer(ctx, shard)
		if err != nil {
			return err
		}
		if timer == nil || timer.Queue == queue {
			continue
		}
		timer.Queue = queue
		_, err = c.cfg.Timers.Set(ctx, *timer, revision)
		if err != nil && (!errors.Is(err, job.ErrConflict) || i == len(shards)-1) {
			return err
		}
	}
	return nil
}

// repeat publishes the waiting message of a run once more, for another queue. The message that stays
// in the old queue does no harm: a worker that receives it finds the run's record. folded reports that
// the stream dropped the message of the last shard as a copy of a recent one.
func (c *Client) repeat(ctx context.Context, shards []job.Slot, queue string, w stream.WaitingSlot) (folded bool, err error) {
	for _, shard := range shards {
		w.Slot = shard
		if folded, err = c.publish(ctx, queue, w.Message, w.Payload); err != nil {
			return false, err
		}
	}
	return folded, nil
}
