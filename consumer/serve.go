package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// serve takes one delivered message from its receipt to its verdict.
func (c *Consumer) serve(msg jetstream.Msg) {
	c.held.add(msg)
	defer c.held.remove(msg)
	if c.isStopping() {
		// It came while the last request ran out, and must not come back to it.
		c.settle(msg, after(100*time.Millisecond))
		return
	}
	d, err := c.delivery(msg)
	if err != nil {
		c.settle(msg, c.unreadable(msg, err))
		return
	}
	key := d.Slot.Key()
	owner, free := c.cfg.Table.take(key, c.cfg.Node.Name())
	switch {
	case free:
		v := c.decide(d, msg.Data())
		c.cfg.Table.end(key)
		c.settle(msg, v)
	case owner == c.cfg.Node.Name():
		c.settle(msg, silent()) // ours, redelivered: its first copy is in hand
	default:
		// An older incarnation's handler has not returned.
		c.settle(msg, after(c.cfg.Lease/4))
	}
}

// delivery reads the message's headers and the broker's word on it.
func (c *Consumer) delivery(msg jetstream.Msg) (job.Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return job.Delivery{}, err
	}
	m, err := job.ParseMessage(msg.Headers())
	if err != nil {
		return job.Delivery{}, err
	}
	return job.Delivery{Message: m, Queue: c.cfg.Queue, Published: meta.Timestamp, Count: int(meta.NumDelivered)}, nil
}

// decide follows the claim rules until they end in a verdict. Each turn looks at
// what is known, asks job.Decide, and tries the write it names; a conflict means
// that something was not as it seemed, so it looks again.
func (c *Consumer) decide(d job.Delivery, payload []byte) verdict {
	ctx := c.cfg.Node.Context()
	view := job.View{Self: c.cfg.Node.Name(), Horizon: c.cfg.Horizon}
	// A first delivery most likely has no record: its claim is tried without a
	// read, and the write decides.
	fresh := d.Count == 1
	for range maxTurns {
		if !fresh {
			if err := c.look(ctx, d, &view); err != nil {
				return c.postponed(d, err)
			}
		}
		fresh = false
		view.Now = c.cfg.Now()
		if err := c.define(ctx, d, &view); err != nil && job.NeedsDefinition(d, view) {
			return c.postponed(d, err)
		}
		step := job.Decide(d, view)
		if step.Action == job.Prove {
			dead, wait, err := c.cfg.Node.Dead(ctx, view.Record.Node)
			if err != nil {
				return c.postponed(d, err)
			}
			if !dead {
				return after(wait + wait/100)
			}
			view.OwnerDead = true
			step = job.Decide(d, view)
		}
		v, decided := c.act(ctx, d, view, step, payload)
		if decided {
			return v
		}
	}
	return after(time.Second)
}

// maxTurns bounds how often a slot that others fight over is looked at in one
// delivery.
const maxTurns = 8

// look reads the slot's record at the ledger's leader.
func (c *Consumer) look(ctx context.Context, d job.Delivery, view *job.View) error {
	rec, revision, err := c.cfg.Ledger.Read(ctx, d.Slot)
	view.Record, view.Revision, view.OwnerDead = nil, revision, false
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read slot %s: %w", d.Slot, err)
	}
	view.Record = &rec
	return nil
}

// define finds the job's definition and handler.
func (c *Consumer) define(ctx context.Context, d job.Delivery, view *job.View) error {
	view.Entry = nil
	view.Handles = c.cfg.Handler(d.Slot.Job) != nil
	entry, err := c.cfg.Registry.Lookup(ctx, d.Slot.Job, d.JobRevision)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("look up job %s: %w", d.Slot.Job, err)
	}
	view.Entry = &entry
	return nil
}

// act carries out a step. It reports false when the write was lost to somebody
// else and the slot has to be looked at again.
func (c *Consumer) act(ctx context.Context, d job.Delivery, view job.View, step job.Step, payload []byte) (verdict, bool) {
	switch step.Action {
	case job.Ack:
		return done(), true
	case job.Later:
		return after(step.Delay), true
	}
	if step.Action == job.Start && c.isStopping() {
		return after(0), true
	}
	rec := step.Record
	rec.Nonce = c.cfg.Table.nonce(c.cfg.Node.Name())
	revision, err := c.cfg.Ledger.Write(ctx, rec, view.Revision)
	switch {
	case errors.Is(err, job.ErrConflict):
		return verdict{}, false
	case errors.Is(err, job.ErrUnknown) && ctx.Err() != nil:
		// The incarnation has ended over it. The write may yet land, as a claim
		// of a node that will be proved dead.
		return silent(), true
	case errors.Is(err, job.ErrUnknown):
		return verdict{}, false // what became of it, the ledger tells
	case err != nil:
		return c.postponed(d, err), true
	case step.Action == job.End:
		c.emit(rec, revision)
		return done(), true
	}
	if view.OwnerDead {
		c.emitKind(job.EventTakeover, rec, revision, view.Record.Node)
	}
	// A slot whose job was deleted after its first claim goes on, with the
	// defaults for what the record does not keep (timeout, backoff).
	policies := job.Job{}
	if view.Entry != nil {
		policies = view.Entry.Job
	}
	return c.attempt(policies.WithDefaults(), rec, revision, payload), true
}

// unreadable is the verdict on a message that this program cannot read. A newer
// one may: it is given back, until it is older than any slot may be.
func (c *Consumer) unreadable(msg jetstream.Msg, why error) verdict {
	meta, err := msg.Metadata()
	if err != nil {
		return dropped(err.Error()) // no message of a queue at all
	}
	if c.cfg.Now().Sub(meta.Timestamp) > c.cfg.Horizon {
		return dropped(why.Error())
	}
	c.cfg.Logger.Warn("a message cannot be read here; left for a newer node", "subject", msg.Subject(), "error", why)
	return after(min(time.Second<<min(meta.NumDelivered, 10), time.Minute))
}

// postponed is the verdict on a slot about which nothing could be found out, or
// whose write the broker refused: nothing was started, and it is wanted again.
func (c *Consumer) postponed(d job.Delivery, err error) verdict {
	if c.cfg.Node.Context().Err() != nil {
		return silent()
	}
	c.cfg.Logger.Warn("slot put off", "slot", d.Slot.ID(), "error", err)
	return after(min(time.Second<<min(d.Count, 5), 30*time.Second))
}
