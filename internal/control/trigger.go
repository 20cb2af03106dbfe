package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Timers are the triggered runs that wait for their time; *kv.Timers is one.
type Timers interface {
	Read(ctx context.Context, s job.Slot) (kv.Timer, uint64, error)
	Set(ctx context.Context, t kv.Timer, revision uint64) (uint64, error)
	Cancel(ctx context.Context, s job.Slot) error
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
}

// Order asks for one run of a job outside its plan.
type Order struct {
	Job string

	// Key names the run. All orders with the same job and key are one run, for as long as the
	// ledger keeps its record. Empty: a random key, so that each order is a new run.
	Key string

	// At is when to run. If it is zero or not in the future, the run starts at once.
	At time.Time

	// Payload is passed to the handler unchanged. It is any JSON of at most job.MaxPayload
	// bytes. Nil: the job's payload.
	Payload json.RawMessage

	// Traceparent is the span that orders the run, whose trace the run then belongs to. May be
	// empty.
	Traceparent string
}

// Validate returns an error that wraps job.ErrInvalid if the order is invalid. It needs no
// broker.
func (o Order) Validate() error {
	if err := codec.ValidateName("job", o.Job); err != nil {
		return err
	}
	if o.Key != "" {
		if err := job.ValidateToken(o.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	switch {
	case len(o.Payload) > job.MaxPayload:
		return fmt.Errorf("%w payload: %d bytes, must be at most %d", job.ErrInvalid, len(o.Payload), job.MaxPayload)
	case len(o.Payload) > 0 && !json.Valid(o.Payload):
		return fmt.Errorf("%w payload: it is not JSON", job.ErrInvalid)
	case !o.At.Before(kv.LatestTimer):
		return fmt.Errorf("%w time %s: must be before %s", job.ErrInvalid, o.At.Format(time.RFC3339), kv.LatestTimer.Format(time.RFC3339))
	}
	return nil
}

// Triggered is the run of an order.
type Triggered struct {
	Slot job.Slot

	// New reports that this order created the run. Otherwise the run existed, and keeps the
	// time and payload of its first order.
	New bool

	// State is job.Pending while the run waits, and then the state of its record.
	State job.State

	// Queue is where it runs. Due is the time that it waits for, or zero.
	Queue string
	Due   time.Time

	// MovedFrom is the queue for which the run was ordered before. It is set if the job's queue
	// has changed, and this order moved the run to Queue.
	MovedFrom string
}

// Trigger orders one run of a job. A paused job can be triggered too, since a pause only
// stops its schedule.
//
// Trigger returns when the broker has stored the run, or has it already. If ctx ends before
// that is known, the error matches job.ErrUnknown: repeat the order with the same key to
// settle it. If there is no such job, the error matches job.ErrNotFound. If the server is too
// old for triggers in the future, it matches errors.ErrUnsupported; if the namespace has no
// timers, kv.ErrNoTimers.
func (c *Control) Trigger(ctx context.Context, o Order) (Triggered, error) {
	if err := o.Validate(); err != nil {
		return Triggered{}, err
	}
	if o.Key == "" {
		o.Key = rand.Text()
	}
	slot := job.Slot{Job: o.Job, Token: o.Key}
	for {
		seen, err := c.see(ctx, slot, !o.At.IsZero())
		if err != nil {
			return Triggered{}, err
		}
		t, err := c.trigger(ctx, slot, o, seen)
		c.cfg.Alive()
		// After a conflict the timer was set, moved or fired: read again, and decide by that.
		if !errors.Is(err, job.ErrConflict) {
			return t, err
		}
	}
}

// sight is what is stored of a triggered run, read at the leaders.
type sight struct {
	entry  core.Entry
	record *job.Record
	now    time.Time
}

func (c *Control) see(ctx context.Context, slot job.Slot, clock bool) (s sight, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		s.entry, _, err = c.cfg.Jobs.Read(ctx, slot.Job)
		if err != nil {
			err = fmt.Errorf("job %s: %w", slot.Job, err)
		}
		return err
	})
	group.Go(func() error {
		r, _, err := c.cfg.Ledger.Read(ctx, slot)
		if errors.Is(err, job.ErrNotFound) {
			return nil
		}
		s.record = &r
		return err
	})
	if clock {
		group.Go(func() (err error) {
			s.now, err = c.cfg.Now(ctx)
			return err
		})
	}
	err = group.Wait()
	c.cfg.Alive()
	return s, err
}

// timer returns the timer of one shard of the run, or nil.
func (c *Control) timer(ctx context.Context, part job.Slot) (*kv.Timer, uint64, error) {
	t, revision, err := c.cfg.Timers.Read(ctx, part)
	if errors.Is(err, job.ErrNotFound) {
		return nil, 0, nil
	}
	return &t, revision, err
}

// trigger publishes the run, or sets its timers, unless the run exists. Reading first only
// saves messages: the claim of the worker ensures that no run starts twice.
//
// A run of several shards has a message or timer for each. The first shard is published last:
// if it exists, all do.
func (c *Control) trigger(ctx context.Context, slot job.Slot, o Order, s sight) (Triggered, error) {
	j := s.entry.Job.WithDefaults()
	if s.record != nil {
		return Triggered{Slot: slot, State: s.record.State, Queue: s.record.Queue, Due: s.record.Due}, nil
	}
	all := parts(slot, j.Shards)
	slices.Reverse(all)
	timer, _, err := c.timer(ctx, all[len(all)-1])
	switch {
	case err != nil:
		return Triggered{}, err
	case timer != nil:
		t := Triggered{Slot: slot, State: job.Pending, Queue: j.Queue, Due: timer.Due}
		if timer.Queue != j.Queue {
			t.MovedFrom = timer.Queue
			err = c.move(ctx, all, j.Queue)
		}
		return t, err
	}
	payload := o.Payload
	if len(payload) == 0 {
		payload = j.Payload
	}
	t := Triggered{Slot: slot, State: job.Pending, New: true, Queue: j.Queue, Due: o.At}
	for _, part := range all {
		m := core.Message{Slot: part, JobRevision: s.entry.Revision, Node: c.cfg.Operator, Due: o.At, Traceparent: o.Traceparent}
		if o.At.After(s.now) {
			_, err = c.cfg.Timers.Set(ctx, kv.Timer{Message: m, Queue: j.Queue, Payload: payload}, 0)
			if errors.Is(err, job.ErrConflict) && part != all[len(all)-1] {
				continue // an earlier order set it and then failed
			}
		} else {
			var folded bool
			folded, err = c.publish(ctx, j.Queue, m, payload)
			t.New = !folded
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// move moves the run's timers to another queue. It returns job.ErrConflict if the last of
// them has changed meanwhile.
func (c *Control) move(ctx context.Context, parts []job.Slot, queue string) error {
	for i, part := range parts {
		timer, revision, err := c.timer(ctx, part)
		if err != nil {
			return err
		}
		if timer == nil || timer.Queue == queue {
			continue
		}
		timer.Queue = queue
		_, err = c.cfg.Timers.Set(ctx, *timer, revision)
		if err != nil && (!errors.Is(err, job.ErrConflict) || i == len(parts)-1) {
			return err
		}
	}
	return nil
}

// publish publishes a slot's message, and repeats it until it is answered or ctx ends. folded
// reports that the stream had the message already.
func (c *Control) publish(ctx context.Context, queue string, m core.Message, payload []byte) (folded bool, err error) {
	for {
		wait, err := c.cfg.Slots.Publish(queue, m, payload)
		if err == nil {
			folded, err = wait(ctx)
		}
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) || pause(ctx, publishAgain) != nil {
			return folded, err
		}
	}
}

// publishAgain is the pause before a message that was not answered is published again.
const publishAgain = 100 * time.Millisecond
