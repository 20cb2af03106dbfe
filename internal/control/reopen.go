package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Retried is the result of Retry.
type Retried struct {
	Record job.Record

	// Left is how many attempts the slot has from now on.
	Left int
}

// Retry gives a slot that ended without success a new start, at once, with as many further
// attempts as its job has. The slot's history stays. A slot that waits for its next attempt
// and has lost its message gets a message. If the slot is split into shards, Retry reopens
// those that did not succeed; s can also be one shard.
//
// If two operators retry a slot at the same time, one gets a *SlotConflictError or a
// *SlotError.
//
// Retry publishes an event first, so that a second outcome is no contradiction. Then it wins
// the record, which decides. Then it publishes the message, under an ID made of the record's
// revision, so that copies fold. After a crash at any point the same call does the rest.
func (c *Control) Retry(ctx context.Context, s job.Slot) (Retried, error) {
	r, revision, err := c.record(ctx, s)
	if err != nil {
		return Retried{}, err
	}
	if r != nil && r.Shards > 0 {
		return c.reopenWhole(ctx, *r, revision)
	}
	if s.Shards > 0 {
		if err := c.openWhole(ctx, s.Whole()); err != nil {
			return Retried{}, err
		}
	}
	o, err := c.open(ctx, s, r, revision)
	if err != nil {
		return Retried{}, err
	}
	return Retried{o.record, o.left()}, c.offer(ctx, o)
}

// opened is a slot whose record is won for a new start, and whose message is not published
// yet.
type opened struct {
	record   job.Record
	revision uint64
	entry    core.Entry
}

func (o opened) left() int { return o.record.MaxAttempts - o.record.Attempt }

// open wins the record of a slot without shards. r is the record at revision.
func (c *Control) open(ctx context.Context, s job.Slot, r *job.Record, revision uint64) (opened, error) {
	w, err := c.message(ctx, s)
	if err != nil {
		return opened{}, err
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return opened{}, err
	}
	waits := w != nil && (r == nil || !w.Stranded)
	if why := c.closed(s, r, waits, now); why != "" {
		refused := &SlotError{Slot: s, Why: why}
		if r != nil {
			refused.State = r.State
		} else if waits {
			refused.State = job.Pending
		}
		return opened{}, refused
	}
	e, _, err := c.cfg.Jobs.Read(ctx, s.Job)
	c.cfg.Alive()
	if err != nil {
		return opened{}, fmt.Errorf("the slot's job: %w", err)
	}
	if r.State != job.Retrying {
		if revision, err = c.reopen(ctx, r, revision, e.Job.WithDefaults(), now); err != nil {
			return opened{}, err
		}
	}
	return opened{*r, revision, e}, nil
}

// closed says why the slot cannot be reopened. It is empty if the slot can.
func (c *Control) closed(s job.Slot, r *job.Record, waits bool, now time.Time) string {
	switch {
	case r == nil && waits:
		return "it waits to be run for the first time"
	case r == nil:
		return "it has no record"
	case r.State == job.Running:
		return "it runs, on node " + r.Node
	case r.State == job.Retrying && waits:
		return "it is being retried already, next at " + r.RetryAt.UTC().Format(time.RFC3339)
	case r.State == job.Succeeded:
		return "it has succeeded"
	case s.Token != "" && r.State == job.Failed && r.Attempt == 0:
		return "it could not be run at all: " + r.Error
	case s.Token != "" && r.Attempt == 0 && r.Publisher == "" && len(r.Payload) == 0:
		return "its message was lost before it was cancelled, and its payload with it"
	case s.Range:
		return "it stands for a range of missed slots, which cronce job backfill can run"
	}
	return c.tooOld(s, *r, now)
}

// tooOld says why no worker would run a slot of this age, or nothing.
func (c *Control) tooOld(s job.Slot, r job.Record, now time.Time) string {
	if now.Sub(core.Began(r)) > c.cfg.Settings.Horizon {
		return fmt.Sprintf("it is older than the horizon of %v, and would not be run", c.cfg.Settings.Horizon)
	}
	return ""
}

// tellReopened stores an event of the new start. It comes before the new start, so that no
// second outcome is seen without it.
func (c *Control) tellReopened(ctx context.Context, r job.Record, now time.Time) error {
	defer c.cfg.Alive()
	return c.cfg.Fleet.Tell(ctx, job.Event{
		V: codec.Version, Kind: job.EventAlert, Time: now.UTC(), Node: c.cfg.Operator, ID: r.Slot.ID(), Job: r.Slot.Job,
		Attempt: r.Attempt, Error: fmt.Sprintf("given a new start by %s; it was %s%s", c.cfg.Operator, r.State, because(r.Error)), Reopened: true,
	})
}

// reopen wins the record for a new start.
func (c *Control) reopen(ctx context.Context, r *job.Record, revision uint64, j job.Job, now time.Time) (uint64, error) {
	reopened := core.Reopen(*r, c.cfg.Operator, j.Retry.Attempts, now)
	if err := c.tellReopened(ctx, *r, now); err != nil {
		return 0, err
	}
	won, err := c.store(ctx, reopened, revision)
	if errors.Is(err, job.ErrConflict) {
		return 0, c.slotConflict(ctx, r.Slot)
	}
	*r = reopened
	return won, err
}

// The messages of producers have no offer number. Those of repairs have small numbers.
const (
	firstOffer = 1000
	offers     = 1 << 30
)

// offer publishes the slot's message under a new ID, and repeats it until it is answered.
func (c *Control) offer(ctx context.Context, o opened) error {
	r, revision, e := o.record, o.revision, o.entry
	m := core.Message{
		Slot: r.Slot, JobRevision: e.Revision, Node: c.cfg.Operator, Due: r.Due, Event: r.Event, Backfill: true,
		Offer: firstOffer + int(revision%offers),
	}
	payload := []byte(e.Job.Payload)
	if r.Slot.Token != "" {
		payload = r.Payload
	}
	for {
		wait, err := c.cfg.Slots.Publish(r.Queue, m, payload)
		if err == nil {
			_, err = wait(ctx)
		}
		if !errors.Is(err, job.ErrUnknown) || errors.Is(err, job.ErrDenied) {
			c.cfg.Alive()
			return err
		}
		if pause(ctx, askAgain) != nil {
			return fmt.Errorf("the record is reopened, but its message may not be published; retry it again: %w", err)
		}
	}
}

// reopenWhole reopens the shards that did not succeed. It wins all their records before it
// publishes the first message. Otherwise the first shard could end while the others still
// have their old outcomes, and the slot would get its old outcome again.
func (c *Control) reopenWhole(ctx context.Context, r job.Record, revision uint64) (Retried, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return Retried{}, err
	}
	done := Retried{Record: r}
	if r.State == job.Succeeded {
		return done, &SlotError{r.Slot, r.State, c.closed(r.Slot, &r, false, now)}
	}
	if why := c.tooOld(r.Slot, r, now); why != "" {
		return done, &SlotError{r.Slot, r.State, why}
	}
	if err := c.openWhole(ctx, r.Slot); err != nil {
		return done, err
	}
	e, _, err := c.cfg.Jobs.Read(ctx, r.Slot.Job)
	if err != nil {
		return done, fmt.Errorf("the slot's job: %w", err)
	}
	done.Record = core.ReopenWhole(r)
	var parts []opened
	for i := range r.Shards {
		part := r.Slot.Part(i+1, r.Shards)
		again, err := c.openPart(ctx, part)
		var refused *SlotError // the shard has succeeded, or is not final
		switch {
		case err == nil:
			parts = append(parts, again)
			done.Left = max(done.Left, again.left())
		case errors.Is(err, job.ErrNotFound):
			// The slot ended before this shard had begun.
			p := r
			p.Slot, p.Shards = part, 0
			parts = append(parts, opened{p, revision, e})
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		case !errors.As(err, &refused):
			// Another operator was first, and may rely on the records won so far.
			return done, errors.Join(err, c.offerAll(ctx, parts))
		case refused.State == job.Pending: // its message still waits
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		}
	}
	if err := c.offerAll(ctx, parts); err != nil {
		return done, err
	}
	if done.Left == 0 {
		return done, &SlotError{r.Slot, r.State, "none of its shards has ended without success"}
	}
	return done, nil
}

func (c *Control) offerAll(ctx context.Context, parts []opened) error {
	for _, p := range parts {
		if err := c.offer(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Control) openPart(ctx context.Context, part job.Slot) (opened, error) {
	r, revision, err := c.record(ctx, part)
	if err != nil {
		return opened{}, err
	}
	return c.open(ctx, part, r, revision)
}

// openWhole removes the outcome of a split slot before one of its shards is reopened. With
// the outcome, the shard would end at once. A slot without an outcome or record is open.
func (c *Control) openWhole(ctx context.Context, whole job.Slot) error {
	r, revision, err := c.record(ctx, whole)
	if err != nil || r == nil || !r.State.Final() || r.State == job.Succeeded {
		return err
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return err
	}
	if err := c.tellReopened(ctx, *r, now); err != nil {
		return err
	}
	if _, err := c.store(ctx, core.ReopenWhole(*r), revision); !errors.Is(err, job.ErrConflict) {
		return err
	}
	return c.slotConflict(ctx, whole)
}

// because returns ": " and the reason, or nothing.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
