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

// Reopened is a slot that was given a new start.
type Reopened struct {
	Record job.Record

	// Left is how many attempts it has from here on.
	Left int
}

// Reopen gives a slot that has ended, but for one that succeeded, a new start: at
// once, with as many further attempts as its job has. Its history stays. Of two
// who do it at once the second gets a *SlotConflictError, or finds it reopened,
// which is a *SlotError.
//
// A crash anywhere in it leaves nothing that the same again does not mend. It is
// told first, so that a second outcome is no contradiction; then the record is
// won, which decides; then the message is offered, under an ID that is made of the
// record's revision, so that copies fold. A slot that waits to be retried without
// a message is offered again.
//
// Of a slot that is split, its parts that did not succeed are given a new start; a
// part alone may be named, too.
func (c *Control) Reopen(ctx context.Context, s job.Slot) (Reopened, error) {
	r, revision, err := c.record(ctx, s)
	if err != nil {
		return Reopened{}, err
	}
	if r != nil && r.Shards > 0 {
		return c.reopenWhole(ctx, *r, revision)
	}
	if s.Shards > 0 {
		if err := c.openWhole(ctx, s.Whole()); err != nil {
			return Reopened{}, err
		}
	}
	o, err := c.open(ctx, s, r, revision)
	if err != nil {
		return Reopened{}, err
	}
	return Reopened{o.record, o.left()}, c.offer(ctx, o)
}

// opened is a slot whose record was won for a new start, and whose message is yet to
// be offered.
type opened struct {
	record   job.Record
	revision uint64
	entry    core.Entry
}

func (o opened) left() int { return o.record.MaxAttempts - o.record.Attempt }

// open wins the record, r at revision, of a slot that is not split.
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

// closed says why the slot cannot be reopened; nothing: it can.
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

// tooOld says so of a slot that no worker would run.
func (c *Control) tooOld(s job.Slot, r job.Record, now time.Time) string {
	if now.Sub(core.Began(r)) > c.cfg.Settings.Horizon {
		return fmt.Sprintf("it is older than the horizon of %v, and no slot of that age is run", c.cfg.Settings.Horizon)
	}
	return ""
}

// tellReopened has it kept that the slot gets a new start: before that, so that a
// second outcome is never told without.
func (c *Control) tellReopened(ctx context.Context, r job.Record, now time.Time) error {
	defer c.cfg.Alive()
	return c.cfg.Fleet.Tell(ctx, job.Event{
		V: codec.Version, Kind: job.EventAlert, Time: now.UTC(), Node: c.cfg.Who, ID: r.Slot.ID(), Job: r.Slot.Job,
		Attempt: r.Attempt, Error: fmt.Sprintf("given a new start by %s; it was %s%s", c.cfg.Who, r.State, because(r.Error)), Reopened: true,
	})
}

// reopen wins the record for a new start.
func (c *Control) reopen(ctx context.Context, r *job.Record, revision uint64, j job.Job, now time.Time) (uint64, error) {
	reopened := core.Reopen(*r, c.cfg.Who, j.Retry.Attempts, now)
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

// The messages of producers have no number, those of a repair a small one.
const (
	firstOffer = 1000
	offers     = 1 << 30
)

// offer publishes the slot's message under an ID of its own, until it is
// answered.
func (c *Control) offer(ctx context.Context, o opened) error {
	r, revision, e := o.record, o.revision, o.entry
	m := core.Message{
		Slot: r.Slot, JobRevision: e.Revision, Node: c.cfg.Who, Due: r.Due, Event: r.Event, Backfill: true,
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
			return fmt.Errorf("the record is reopened, but not its message offered: %w", err)
		}
	}
}

// reopenWhole gives the parts that did not succeed a new start. All their records are
// won before the first message is offered: a part that is done while others still
// have their old outcome would give that to the whole.
func (c *Control) reopenWhole(ctx context.Context, r job.Record, revision uint64) (Reopened, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return Reopened{}, err
	}
	done := Reopened{Record: r}
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
		var refused *SlotError // it has succeeded, or is under way
		switch {
		case err == nil:
			parts = append(parts, again)
			done.Left = max(done.Left, again.left())
		case errors.Is(err, job.ErrNotFound):
			// The slot ended before this part had begun.
			p := r
			p.Slot, p.Shards = part, 0
			parts = append(parts, opened{p, revision, e})
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		case !errors.As(err, &refused):
			// Somebody was faster, who may count on what was won so far.
			return done, errors.Join(err, c.offerAll(ctx, parts))
		case refused.State == job.Pending: // its message is still there, and will do
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		}
	}
	if err := c.offerAll(ctx, parts); err != nil {
		return done, err
	}
	if done.Left == 0 {
		return done, &SlotError{r.Slot, r.State, "none of its parts has ended without success"}
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

// openWhole takes the outcome off a slot that is split, before a part of it is
// given a new start: with it, the part would end at once. What has no outcome, or
// no record yet, is open.
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
