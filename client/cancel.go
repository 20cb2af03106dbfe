package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// askAgain is the pause between two requests to end a slot.
const askAgain = 200 * time.Millisecond

// CancelWait is what Cancel waits for.
type CancelWait struct {
	// Node owns the slot, by the claim with this Fence.
	Node  string
	Fence uint64

	// Ending reports that the node has cancelled the handler's context, and that the handler
	// has not returned yet.
	Ending bool

	// Silent reports that the node has not answered. If it stays silent, it is proved dead
	// after Wait.
	Silent bool
	Wait   time.Duration
}

// Cancel ends a slot that waits, runs or will be retried. If the slot runs, Cancel asks its owner to
// end it, and the owner writes the outcome. Cancel writes it only if the slot has no owner, or if
// the owner is proved dead. Retry can reopen a cancelled slot.
//
// Cancel returns the slot with its outcome. If the slot ends in another way while Cancel waits,
// its state is not job.Cancelled. If the slot had another outcome before the call, the error is a
// *SlotError that wraps job.ErrConflict.
//
// Cancel calls waiting repeatedly with what it waits for; waiting may be nil. If ctx ends
// first, the slot may still be cancelled. Cancel can be repeated.
func (c *Client) Cancel(ctx context.Context, id string, waiting func(CancelWait)) (SlotDetails, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return SlotDetails{}, err
	}
	if waiting == nil {
		waiting = func(CancelWait) {}
	}
	r, err := c.cancel(ctx, s, waiting)
	if err != nil {
		return SlotDetails{}, err
	}
	if r.State == job.Cancelled {
		c.ordered(ctx, "cancel", job.Event{ID: s.ID(), Job: s.Job})
	}
	return recordedDetails(r, 0), nil
}

func (c *Client) cancel(ctx context.Context, s job.Slot, waiting func(CancelWait)) (job.Record, error) {
	for first := true; ; first = false {
		r, revision, err := c.record(ctx, s)
		switch {
		case err != nil:
			return job.Record{}, err
		case r != nil && r.State.Final():
			if first && r.State != job.Cancelled {
				return *r, &SlotError{s, r.State, "it has its outcome: " + string(r.State)}
			}
			return *r, c.removeTimer(ctx, s) // an earlier cancel may have been cut short
		case r != nil && r.Shards > 0 && r.State != job.Waiting: // a slot that waits has no shards yet
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

// askOwner asks the slot's owner to end it. It reports whether the owner is proved dead. If
// not, the caller reads the record again.
func (c *Client) askOwner(ctx context.Context, r job.Record, fence uint64, waiting func(CancelWait)) (dead bool, err error) {
	asked := CancelWait{Node: r.Node, Fence: fence}
	answer, err := c.cfg.Fleet.AskCancel(ctx, r.Node, core.CancelRequest{ID: r.Slot.ID(), Fence: fence, By: c.cfg.Operator})
	switch {
	case err == nil:
		asked.Ending = answer.Ending
	case errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) && ctx.Err() == nil:
		asked.Silent = true
		if dead, asked.Wait, err = c.cfg.Peers.Dead(ctx, r.Node, c.cfg.Operator); err != nil || dead {
			return dead, err
		}
	default:
		return false, err
	}
	c.cfg.Alive()
	waiting(asked)
	return false, pause(ctx, askAgain)
}

func (c *Client) cause() error { return core.CancelRequest{By: c.cfg.Operator}.Cause() }

// end writes the outcome of a slot without an owner.
func (c *Client) end(ctx context.Context, s job.Slot, r *job.Record, revision uint64) (job.Record, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return job.Record{}, err
	}
	v := core.View{Now: now, Self: c.cfg.Operator, Horizon: c.cfg.Settings.Horizon, Record: r, Revision: revision}
	cancel := core.Cancel
	var d core.Delivery
	if r == nil {
		w, err := c.message(ctx, s)
		if err != nil {
			return job.Record{}, err
		}
		if w == nil {
			d, err = c.deliveryInLock(ctx, s)
			if err != nil {
				return job.Record{}, err
			}
		} else {
			d = core.Delivery{Message: w.Message, Queue: w.Queue, Published: w.Published, Payload: w.Payload}
			if w.Timer {
				d.Published = now // a slot's age counts from when it leaves the timers
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
	c.emit(job.Event{
		Kind: job.EventCancelled, Time: now.UTC(), ID: s.ID(), Job: s.Job, Attempt: ended.Attempt, Fence: won, Error: ended.Error,
	})
	if r != nil && r.State == job.Retrying {
		if err := c.vacate(ctx, ended, won); err != nil {
			return ended, err
		}
	}
	return ended, c.removeTimer(ctx, s)
}

// vacate publishes the message of a slot that ended between two attempts, if it holds a place in its
// job's lock. The worker that gets the message takes the slot out of the lock. Otherwise the next slot of
// the job would wait until the next attempt was due.
func (c *Client) vacate(ctx context.Context, r job.Record, revision uint64) error {
	l, _, err := c.cfg.Locks.Read(ctx, r.Slot.Job)
	c.cfg.Alive()
	switch {
	case errors.Is(err, job.ErrNotFound), exchange.IsUnreadable(err):
		return nil
	case err != nil:
		return err
	case !l.Holds(r.Slot.Whole()):
		return nil
	}
	for _, m := range core.CallMessages(r, revision, c.cfg.Operator, false) {
		if _, err := c.cfg.Slots.Put(ctx, r.Queue, m, r.Payload); err != nil {
			return err
		}
		c.cfg.Alive()
	}
	return nil
}

// deliveryInLock returns a delivery for a slot that has neither a record nor a message, from its
// place in its job's lock. If the slot is not in the lock either, the error is a *SlotError.
func (c *Client) deliveryInLock(ctx context.Context, s job.Slot) (core.Delivery, error) {
	l, _, err := c.cfg.Locks.Read(ctx, s.Job)
	c.cfg.Alive()
	place, in := l.Holder(s)
	switch {
	case err != nil && !errors.Is(err, job.ErrNotFound):
		return core.Delivery{}, err
	case !in:
		return core.Delivery{}, &SlotError{Slot: s, Why: "it has no record and no message"}
	}
	d := core.Delivery{Message: core.Message{Slot: s, Due: s.At}, Published: place.Since}
	e, _, err := c.cfg.Jobs.Read(ctx, s.Job)
	c.cfg.Alive()
	if err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err) {
		return core.Delivery{}, err
	}
	d.Queue = e.Job.WithDefaults().Queue
	return d, nil
}

// removeTimer removes the timer of a slot that has its outcome. If the timer fires first, the
// worker finds the record and drops the message.
func (c *Client) removeTimer(ctx context.Context, s job.Slot) error {
	if s.Token == "" {
		return nil
	}
	defer c.cfg.Alive()
	return c.cfg.Timers.Cancel(ctx, s)
}

// shardsAtOnce bounds the shards of a slot that are cancelled concurrently. If their handlers return
// at once, all shards (at most job.MaxShards) end within about a second.
const shardsAtOnce = 64

// cancelWhole cancels each shard of a slot once. First it marks the record of the whole slot: a
// worker that receives a shard later then ends it without a start.
func (c *Client) cancelWhole(ctx context.Context, r job.Record, revision uint64, waiting func(CancelWait)) error {
	if r.Error == "" {
		_, err := c.store(ctx, core.MarkWhole(r, c.cause()), revision)
		if err != nil && !errors.Is(err, job.ErrConflict) {
			return fmt.Errorf("cancel slot %q: %w", r.Slot.ID(), err)
		}
	}
	group, going := errgroup.WithContext(ctx)
	group.SetLimit(shardsAtOnce)
	var mu sync.Mutex
	for i := range r.Shards {
		group.Go(func() error {
			_, err := c.cancel(going, r.Slot.WithShard(i+1, r.Shards), func(a CancelWait) {
				mu.Lock()
				defer mu.Unlock()
				waiting(a)
			})
			if _, refused := errors.AsType[*SlotError](err); refused {
				return nil // the shard has its outcome, or is not published yet
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	final, err := c.conclude(ctx, r.Slot)
	switch {
	case errors.Is(err, job.ErrConflict): // another writer has concluded it
		return nil
	case err != nil || final:
		return err
	}
	return pause(ctx, askAgain)
}

// conclude writes the outcome of a slot whose shards all have one. It reports whether the
// slot has its outcome now.
func (c *Client) conclude(ctx context.Context, whole job.Slot) (final bool, err error) {
	r, revision, err := c.record(ctx, whole)
	if err != nil || r == nil || r.State.Final() {
		return r != nil && r.State.Final(), err
	}
	shards := make([]job.Record, r.Shards)
	for i := range shards {
		shard, _, err := c.record(ctx, whole.WithShard(i+1, r.Shards))
		if err != nil || shard == nil || !shard.State.Final() {
			return false, err
		}
		shards[i] = *shard
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return false, err
	}
	end := core.Conclude(*r, shards, c.cfg.Operator, now)
	won, err := c.store(ctx, end, revision)
	if err != nil {
		return false, err
	}
	c.emit(job.Event{
		Kind: job.EventKind(end.State), Time: now.UTC(), ID: whole.ID(), Job: whole.Job, Attempt: end.Attempt, Fence: won, Error: end.Error,
	})
	return true, nil
}
