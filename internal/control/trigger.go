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

	// Key names the run: the same job and key, from anywhere and as often as one
	// likes, are one run for as long as the ledger remembers it. Empty: a random
	// one, so that each order is a run of its own.
	Key string

	// At is when to run. Zero, or not in the future: at once.
	At time.Time

	// Payload is handed to the handler as it is: any JSON, at most
	// job.MaxPayload bytes. Nil: the job's own.
	Payload json.RawMessage

	// Traceparent is of the span that orders it; empty: none does. The run is of
	// its trace then.
	Traceparent string
}

// Validate refuses, with an error that wraps job.ErrInvalid, what can be known to
// be wrong without a broker.
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
		return fmt.Errorf("%w payload: %d bytes, at most %d", job.ErrInvalid, len(o.Payload), job.MaxPayload)
	case len(o.Payload) > 0 && !json.Valid(o.Payload):
		return fmt.Errorf("%w payload: it is not JSON", job.ErrInvalid)
	case !o.At.Before(kv.LatestTimer):
		return fmt.Errorf("%w time %s: want one before %s", job.ErrInvalid, o.At.Format(time.RFC3339), kv.LatestTimer.Format(time.RFC3339))
	}
	return nil
}

// Triggered is what became of an order.
type Triggered struct {
	Slot job.Slot

	// New says that this order made the run. Else it was there, and stays as it
	// was ordered first: its time and payload are not these.
	New bool

	// State is job.Pending while the run waits, then that of its record.
	State job.State

	// Queue is where it runs; Due the time that it waits for, zero for none.
	Queue string
	Due   time.Time

	// MovedFrom is the queue on which it waited for its time, if that is no longer
	// the job's: it was moved to Queue.
	MovedFrom string
}

// Trigger orders one run. A paused job can be triggered: what is paused is its
// plan.
//
// It returns when the broker has stored the run, or had it already. An error that
// wraps job.ErrUnknown says that ctx ended before that was known: the same order,
// with the same key, settles it. job.ErrNotFound: there is no such job. Triggers in
// the future can fail with errors.ErrUnsupported: the server is too old for them, and
// kv.ErrNoTimers.
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
		// A conflict: the timer was set, moved or fired meanwhile. What stands
		// there now decides.
		if !errors.Is(err, job.ErrConflict) {
			return t, err
		}
	}
}

// sight is what the broker's leaders know of a triggered run.
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

// timer is what waits of one part of the run, nil for nothing.
func (c *Control) timer(ctx context.Context, part job.Slot) (*kv.Timer, uint64, error) {
	t, revision, err := c.cfg.Timers.Read(ctx, part)
	if errors.Is(err, job.ErrNotFound) {
		return nil, 0, nil
	}
	return &t, revision, err
}

// trigger does what is left to do. That the run is known already is read, not won:
// it spares messages, while that no run starts twice is for the worker's claim.
//
// A run that is split is as many messages, or timers. The first part comes last: it
// stands for all of them.
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
		m := core.Message{Slot: part, JobRevision: s.entry.Revision, Node: c.cfg.Who, Due: o.At, Traceparent: o.Traceparent}
		if o.At.After(s.now) {
			_, err = c.cfg.Timers.Set(ctx, kv.Timer{Message: m, Queue: j.Queue, Payload: payload}, 0)
			if errors.Is(err, job.ErrConflict) && part != all[len(all)-1] {
				continue // set by an order that did not come to its end
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

// move sends what still waits of the run's parts to another queue. job.ErrConflict:
// something happened to the last of them meanwhile.
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

// publish stores a slot's message: the same again until that is answered, or ctx
// ends. folded says that the stream has had it before.
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

// publishAgain is how long after a publish that was not answered it is repeated.
const publishAgain = 100 * time.Millisecond
