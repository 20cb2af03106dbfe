package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// askAgain is the pause between two requests to end a slot, and between two looks
// at what became of them.
const askAgain = 200 * time.Millisecond

// Asked is what a Cancel waits for.
type Asked struct {
	// Node owns the slot, by its claim of Fence.
	Node  string
	Fence uint64

	// Ending says that the node has ended the handler's context; the handler has
	// not returned yet.
	Ending bool

	// Silent says that the node has not answered. To prove it dead takes Wait
	// more, if it stays so.
	Silent bool
	Wait   time.Duration
}

// Cancel ends the slot for good, whether it waits in the stream or, with its message
// lost, in its job's lock, waits to be retried, or runs: then its owner is asked to end it, and writes the outcome;
// nobody else may, unless the owner is proved dead. It returns the record with
// the outcome, which is not job.Cancelled if the slot was faster. A slot that had
// its outcome before is a *SlotError, but for one that was cancelled already.
//
// waiting is told, again and again, what is waited for. Cancel may be given up at
// any time, and repeated: what was asked for may happen all the same.
func (c *Control) Cancel(ctx context.Context, s job.Slot, waiting func(Asked)) (job.Record, error) {
	for first := true; ; first = false {
		r, revision, err := c.record(ctx, s)
		switch {
		case err != nil:
			return job.Record{}, err
		case r != nil && r.State.Final():
			if first && r.State != job.Cancelled {
				return *r, &SlotError{s, r.State, "it has its outcome: " + string(r.State)}
			}
			return *r, c.noTimer(ctx, s) // an earlier cancel may have been cut short
		case r != nil && r.Shards > 0:
			if err := c.cancelWhole(ctx, *r, revision, waiting); err != nil {
				return *r, err
			}
			continue
		case r != nil && r.State == job.Running:
			dead, err := c.askOwner(ctx, *r, revision, waiting)
			if err != nil {
				return *r, err
			}
			if !dead {
				continue
			}
		}
		ended, err := c.end(ctx, s, r, revision)
		if !errors.Is(err, job.ErrConflict) {
			return ended, err
		}
	}
}

// askOwner asks the node that runs the slot to end it, and reports whether that
// node is proved dead. If not, it is time to look at the record again.
func (c *Control) askOwner(ctx context.Context, r job.Record, fence uint64, waiting func(Asked)) (dead bool, err error) {
	asked := Asked{Node: r.Node, Fence: fence}
	answer, err := c.cfg.Fleet.AskCancel(ctx, r.Node, core.CancelRequest{ID: r.Slot.ID(), Fence: fence, By: c.cfg.Who})
	switch {
	case err == nil:
		asked.Ending = answer.Ending
	case errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) && ctx.Err() == nil:
		asked.Silent = true
		if dead, asked.Wait, err = c.cfg.Peers.Dead(ctx, r.Node, c.cfg.Who); err != nil || dead {
			return dead, err
		}
	default:
		return false, err
	}
	c.cfg.Alive()
	waiting(asked)
	return false, pause(ctx, askAgain)
}

func (c *Control) cause() error { return core.CancelRequest{By: c.cfg.Who}.Cause() }

// end writes the outcome of a slot that nobody runs.
func (c *Control) end(ctx context.Context, s job.Slot, r *job.Record, revision uint64) (job.Record, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return job.Record{}, err
	}
	v := core.View{Now: now, Self: c.cfg.Who, Horizon: c.cfg.Settings.Horizon, Record: r, Revision: revision}
	cancel := core.Cancel
	var d core.Delivery
	if r == nil {
		w, err := c.message(ctx, s)
		if err != nil {
			return job.Record{}, err
		}
		if w == nil {
			d, err = c.inLock(ctx, s)
			if err != nil {
				return job.Record{}, err
			}
		} else {
			d = core.Delivery{Message: w.Message, Queue: w.Queue, Published: w.Published, Payload: w.Payload}
			if w.Timer {
				d.Published = now // its age begins when it leaves the timers
			}
			if w.Slot != s {
				cancel = core.CancelWhole
			}
		}
	}
	ended := cancel(d, v, c.cause())
	won, err := c.store(ctx, ended, revision)
	if err != nil {
		return job.Record{}, fmt.Errorf("cancel slot %q: %w", s.ID(), err)
	}
	c.tell(job.Event{
		Kind: job.EventCancelled, Time: now.UTC(), ID: s.ID(), Job: s.Job, Attempt: ended.Attempt, Fence: won, Error: ended.Error,
	})
	return ended, c.noTimer(ctx, s)
}

// inLock is what is known of a slot that has lost its message while it stood in its
// job's lock: that it is there. A worker may still have it in hand.
func (c *Control) inLock(ctx context.Context, s job.Slot) (core.Delivery, error) {
	l, _, err := c.cfg.Locks.Read(ctx, s.Job)
	c.cfg.Alive()
	stay, in := l.Stay(s)
	switch {
	case err != nil && !errors.Is(err, job.ErrNotFound):
		return core.Delivery{}, err
	case !in:
		return core.Delivery{}, &SlotError{Slot: s, Why: "it has no record, and does not wait in the stream"}
	}
	d := core.Delivery{Message: core.Message{Slot: s, Due: s.At}, Published: stay.Since}
	e, _, err := c.cfg.Jobs.Read(ctx, s.Job)
	c.cfg.Alive()
	if err != nil && !errors.Is(err, job.ErrNotFound) && !core.IsUnreadable(err) {
		return core.Delivery{}, err
	}
	d.Queue = e.Job.WithDefaults().Queue
	return d, nil
}

// noTimer removes the timer of a slot that has its outcome: should it fire all the
// same, the record ends it.
func (c *Control) noTimer(ctx context.Context, s job.Slot) error {
	if s.Token == "" {
		return nil
	}
	defer c.cfg.Alive()
	return c.cfg.Timers.Cancel(ctx, s)
}

// partsAtOnce is how many parts of a slot are asked to end at once: so many that
// all end within about a second.
const partsAtOnce = 64

// cancelWhole ends all parts of a slot that is split, once: it is marked first, so
// that parts that nobody has seen yet end by themselves.
func (c *Control) cancelWhole(ctx context.Context, r job.Record, revision uint64, waiting func(Asked)) error {
	if r.Error == "" {
		_, err := c.store(ctx, core.MarkWhole(r, c.cause()), revision)
		if err != nil && !errors.Is(err, job.ErrConflict) {
			return fmt.Errorf("cancel slot %q: %w", r.Slot.ID(), err)
		}
	}
	group, parts := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	var one sync.Mutex
	for i := range r.Shards {
		group.Go(func() error {
			_, err := c.Cancel(parts, r.Slot.Part(i+1, r.Shards), func(a Asked) {
				one.Lock()
				defer one.Unlock()
				waiting(a)
			})
			var refused *SlotError // it has its outcome, or was not published yet
			if errors.As(err, &refused) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	final, err := c.conclude(ctx, r.Slot)
	switch {
	case errors.Is(err, job.ErrConflict): // somebody else has concluded it
		return nil
	case err != nil || final:
		return err
	}
	return pause(ctx, askAgain)
}

// conclude writes the outcome of a slot that is split, if all its parts have one,
// and reports whether it has it now.
func (c *Control) conclude(ctx context.Context, whole job.Slot) (final bool, err error) {
	r, revision, err := c.record(ctx, whole)
	if err != nil || r == nil || r.State.Final() {
		return r != nil && r.State.Final(), err
	}
	parts := make([]job.Record, r.Shards)
	for i := range parts {
		part, _, err := c.record(ctx, whole.Part(i+1, r.Shards))
		if err != nil || part == nil || !part.State.Final() {
			return false, err
		}
		parts[i] = *part
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return false, err
	}
	end := core.Conclude(*r, parts, c.cfg.Who, now)
	won, err := c.store(ctx, end, revision)
	if err != nil {
		return false, err
	}
	c.tell(job.Event{
		Kind: job.EventKind(end.State), Time: now.UTC(), ID: whole.ID(), Job: whole.Job, Attempt: end.Attempt, Fence: won, Error: end.Error,
	})
	return true, nil
}
