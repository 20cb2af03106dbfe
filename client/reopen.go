package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Retried is the result of Retry.
type Retried struct {
	SlotDetails

	// Left is how many attempts the slot has from now on.
	Left int
}

// Retry gives a slot that ended without success a new start, at once, with as many further
// attempts as its job has. The slot's history stays. A slot that waits for its next attempt
// and has lost its message gets a message. If the slot is split into shards, Retry reopens
// those that did not succeed. id can also name one shard.
//
// A slot of a range of missed slots has no record. Retry backfills it.
//
// If the slot has succeeded, runs or waits, the error is a *SlotError that wraps job.ErrConflict.
// If two operators retry a slot at the same time, one gets a *SlotConflictError or a
// *SlotError.
//
// Retry publishes an event first, because a second outcome without it would look like an error.
// Then it writes the record at the revision that it has read: of several concurrent retries only
// one succeeds. Then it publishes the message, under an ID made of the record's revision, so that
// copies fold. After a crash at any point the same call does the rest.
func (c *Client) Retry(ctx context.Context, id string) (Retried, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return Retried{}, err
	}
	done, err := c.retry(ctx, s)
	if err == nil {
		c.ordered(ctx, "retry", job.Event{ID: s.ID(), Job: s.Job, Attempt: done.Attempt})
	}
	return done, err
}

func (c *Client) retry(ctx context.Context, s job.Slot) (Retried, error) {
	r, revision, err := c.record(ctx, s)
	if err != nil {
		return Retried{}, err
	}
	if r != nil && r.Shards > 0 {
		return c.reopenWhole(ctx, *r, revision)
	}
	if r == nil && s.Shards == 0 {
		if _, err := c.rangeOf(ctx, s); !errors.Is(err, job.ErrNotFound) {
			return c.backfillOne(ctx, s, err)
		}
	}
	e, now, err := c.checkReopen(ctx, s, r)
	if err == nil && s.Shards > 0 {
		err = c.openWhole(ctx, s.Whole())
	}
	if err != nil {
		return Retried{}, err
	}
	var o opened
	if s.Shards > 0 {
		if o, err = c.openShard(ctx, s); err != nil {
			err = c.concludeRefused(ctx, s.Whole(), err)
		}
	} else {
		o, err = c.open(ctx, r, revision, e, now)
	}
	if err != nil {
		return Retried{}, err
	}
	return Retried{recordedDetails(o.record, o.revision), o.left()}, c.offerAll(ctx, []opened{o})
}

// backfillOne starts a slot of a range of missed slots, which has no record of its own. err is the
// error of the search for the range.
func (c *Client) backfillOne(ctx context.Context, s job.Slot, err error) (Retried, error) {
	if err != nil {
		return Retried{}, err
	}
	f := filler{Client: c}
	if err := f.plan(ctx, s.Job, BackfillOptions{From: s.At, To: s.At.Add(time.Second)}); err != nil {
		return Retried{}, err
	}
	if err := f.known(ctx); err != nil {
		return Retried{}, err
	}
	if f.sum.Waiting > 0 {
		return Retried{}, &SlotError{Slot: s, State: job.Pending, Why: "it waits to be run for the first time"}
	}
	if err := f.fill(ctx, 0); err != nil {
		return Retried{}, err
	}
	d := nameOnly(s)
	d.State, d.Queue, d.MaxAttempts = job.Pending, f.entry.Job.WithDefaults().Queue, f.entry.Job.WithDefaults().Retry.Attempts
	return Retried{d, d.MaxAttempts}, nil
}

// opened is a slot whose record was reopened, and whose new message is not published yet.
type opened struct {
	record   job.Record
	revision uint64
	entry    plans.Entry
	first    bool // a shard that has no record: record and revision are those of its whole slot
}

func (o opened) left() int { return o.record.MaxAttempts - o.record.Attempt }

// checkReopen returns an error if a slot that is not split, or one shard, cannot be reopened. It
// returns the slot's job and the time for open, and changes nothing. r is the slot's record, or nil.
func (c *Client) checkReopen(ctx context.Context, s job.Slot, r *job.Record) (plans.Entry, time.Time, error) {
	w, err := c.message(ctx, s)
	if err != nil {
		return plans.Entry{}, time.Time{}, err
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return plans.Entry{}, time.Time{}, err
	}
	waits := w != nil && (r == nil || !w.Stranded)
	if why := c.whyNotReopen(s, r, waits, now); why != "" {
		refused := &SlotError{Slot: s, Why: why}
		if r != nil {
			refused.State = r.State
		} else if waits {
			refused.State = job.Pending
		}
		return plans.Entry{}, time.Time{}, refused
	}
	e, err := c.jobOf(ctx, s)
	return e, now, err
}

func (c *Client) jobOf(ctx context.Context, s job.Slot) (plans.Entry, error) {
	e, _, err := c.cfg.Jobs.Read(ctx, s.Job)
	c.cfg.Alive()
	if err != nil {
		return e, fmt.Errorf("read the job of the slot: %w", err)
	}
	return e, nil
}

// open reopens the record of a slot after checkReopen. r is the record at revision.
func (c *Client) open(ctx context.Context, r *job.Record, revision uint64, e plans.Entry, now time.Time) (o opened, err error) {
	if r.State != job.Retrying {
		if revision, err = c.reopen(ctx, r, revision, e.Job.WithDefaults(), now); err != nil {
			return opened{}, err
		}
	}
	return opened{*r, revision, e, false}, nil
}

// whyNotReopen returns why the slot cannot be reopened, or "" if it can be.
func (c *Client) whyNotReopen(s job.Slot, r *job.Record, waits bool, now time.Time) string {
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
	return c.tooOld(*r, now)
}

// tooOld returns why no worker would run a slot of this age, or "".
func (c *Client) tooOld(r job.Record, now time.Time) string {
	if now.Sub(core.Began(r)) > c.cfg.Settings.Horizon {
		return fmt.Sprintf("it is older than the horizon of %v, and would not be run", c.cfg.Settings.Horizon)
	}
	return ""
}

// announceReopened stores an event that announces the new start. Call it before the record is
// reopened, so that the event is stored before a second outcome.
func (c *Client) announceReopened(ctx context.Context, r job.Record, now time.Time) error {
	defer c.cfg.Alive()
	return c.cfg.Fleet.StoreEvent(ctx, job.Event{
		V: codec.Version, Kind: job.EventAlert, Time: now.UTC(), Node: c.cfg.Operator, ID: r.Slot.ID(), Job: r.Slot.Job,
		Attempt: r.Attempt, Error: fmt.Sprintf("given a new start by %s; it was %s%s", c.cfg.Operator, r.State, core.Because(r.Error)), Reopened: true,
	})
}

// reopen writes the record for a new start, at revision. If another writer was first, the error
// is a *SlotConflictError.
func (c *Client) reopen(ctx context.Context, r *job.Record, revision uint64, j job.Job, now time.Time) (uint64, error) {
	reopened := core.Reopen(*r, c.cfg.Operator, j.Retry.Attempts, now)
	if err := c.announceReopened(ctx, *r, now); err != nil {
		return 0, err
	}
	won, err := c.store(ctx, reopened, revision)
	if errors.Is(err, job.ErrConflict) {
		return 0, c.slotConflict(ctx, r.Slot)
	}
	*r = reopened
	return won, err
}

// The offer number is part of the message ID. Messages of producers have none, those of "cronce
// verify" have 1, and those of package sweep have the record's revision plus 2. Retries have
// firstOffer plus the revision modulo offers.
const (
	firstOffer = 1000
	offers     = 1 << 30
)

// offer publishes the slot's message under a new ID.
func (c *Client) offer(ctx context.Context, o opened) error {
	r, revision, e := o.record, o.revision, o.entry
	m := core.Message{
		Slot: r.Slot, JobRevision: e.Revision, Node: c.cfg.Operator, Due: r.Due, Event: r.Event, Backfill: true,
		Offer: firstOffer + int(revision%offers),
	}
	if o.first {
		// A chained slot is in no plan of a later definition. Its message says so, as the sweep's does.
		m.Chained = e.IsChained(r.Slot)
		m.CaughtUp = m.Chained
	}
	payload := []byte(e.Job.Payload)
	if r.Slot.Token != "" {
		payload = r.Payload
	}
	_, err := c.cfg.Slots.Put(ctx, r.Queue, m, payload)
	if errors.Is(err, job.ErrUnknown) && !errors.Is(err, job.ErrDenied) {
		return fmt.Errorf("the record is reopened, but its message may not be published; retry it again: %w", err)
	}
	c.cfg.Alive()
	return err
}

// reopenWhole reopens the shards that did not succeed. It reopens all their records before it
// publishes the first message. Otherwise the first shard could end while the others still have
// their old outcomes, and the slot would get its old outcome again.
func (c *Client) reopenWhole(ctx context.Context, r job.Record, revision uint64) (Retried, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return Retried{}, err
	}
	done := Retried{SlotDetails: recordedDetails(r, revision)}
	if r.State == job.Succeeded {
		return done, &SlotError{r.Slot, r.State, c.whyNotReopen(r.Slot, &r, false, now)}
	}
	if why := c.tooOld(r, now); why != "" {
		return done, &SlotError{r.Slot, r.State, why}
	}
	e, err := c.jobOf(ctx, r.Slot)
	if err != nil {
		return done, err
	}
	if err := c.openWhole(ctx, r.Slot); err != nil {
		return done, err
	}
	done.SlotDetails = recordedDetails(core.ReopenWhole(r), revision)
	var shards []opened
	for i := range r.Shards {
		shard := r.Slot.WithShard(i+1, r.Shards)
		again, err := c.openShard(ctx, shard)
		refused, isRefused := errors.AsType[*SlotError](err) // the shard has succeeded, or is not final
		switch {
		case err == nil:
			shards = append(shards, again)
			done.Left = max(done.Left, again.left())
		case errors.Is(err, job.ErrNotFound):
			// The slot ended before this shard had begun.
			p := r
			p.Slot, p.Shards = shard, 0
			shards = append(shards, opened{p, revision, e, true})
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		case !isRefused:
			// The shards that are open by now would wait for the sweep.
			return done, errors.Join(err, c.offerAll(ctx, shards))
		case refused.State == job.Pending: // its message still waits
			done.Left = max(done.Left, e.Job.WithDefaults().Retry.Attempts)
		}
	}
	if err := c.offerAll(ctx, shards); err != nil {
		return done, err
	}
	if done.Left == 0 {
		return done, c.concludeRefused(ctx, r.Slot, &SlotError{r.Slot, r.State, "none of its shards has ended without success"})
	}
	return done, nil
}

// offerAll publishes the messages of a slot that was reopened, or of its shards.
func (c *Client) offerAll(ctx context.Context, all []opened) error {
	if len(all) > 0 && all[0].record.Slot.Shards > 0 {
		if err := c.keepWholeOpen(ctx, all[0].record.Slot.Whole()); err != nil {
			return fmt.Errorf("the record is reopened, but its message is not published; retry it again: %w", err)
		}
	}
	for _, p := range all {
		if err := c.offer(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// openShard reopens the record of one shard. If another operator reopens it at the same time, openShard
// reads it again: an error would say that nothing was changed.
func (c *Client) openShard(ctx context.Context, shard job.Slot) (opened, error) {
	for {
		r, revision, err := c.record(ctx, shard)
		if err != nil {
			return opened{}, err
		}
		e, now, err := c.checkReopen(ctx, shard, r)
		if err != nil {
			return opened{}, err
		}
		o, err := c.open(ctx, r, revision, e, now)
		if _, lost := errors.AsType[*SlotConflictError](err); !lost {
			return o, err
		}
	}
}

// concludeRefused concludes a split slot whose shards could not be reopened, and returns err, which says
// why. openWhole has removed the outcome of the slot. If its shards have ended meanwhile, no worker has a
// message that would make it write the outcome again.
func (c *Client) concludeRefused(ctx context.Context, whole job.Slot, err error) error {
	if _, refused := errors.AsType[*SlotError](err); !refused {
		return err
	}
	if _, failed := c.conclude(ctx, whole); failed != nil && !errors.Is(failed, job.ErrConflict) {
		return errors.Join(err, fmt.Errorf("write the outcome of slot %s again: %w", whole, failed))
	}
	return err
}

// openWhole removes the outcome of a split slot before one of its shards is reopened: with that
// outcome, the shard would end at once. It does nothing if the slot has no outcome or has succeeded. If
// the slot is being cancelled, the shard would end at once too: then the error is a *SlotError.
func (c *Client) openWhole(ctx context.Context, whole job.Slot) error {
	r, revision, err := c.record(ctx, whole)
	switch {
	case err != nil, r == nil:
		return err
	case r.State == job.Running && r.Error != "":
		return &SlotError{whole, r.State, "it is being cancelled; retry it once it has its outcome (" + r.Error + ")"}
	case !r.State.Final(), r.State == job.Succeeded:
		return nil
	}
	if err := c.writeOpenWhole(ctx, *r, revision); !errors.Is(err, job.ErrConflict) {
		return err
	}
	return c.slotConflict(ctx, whole)
}

// keepWholeOpen writes the record of a split slot without an outcome once more. Call it after its shards
// were reopened and before their messages are published. Between openWhole and the first of these
// writes, a worker finds an outcome in each shard, and may conclude the slot again: the reopened shards
// would then end cancelled. The write removes such an outcome. If it was not written yet, the new
// revision refuses it.
func (c *Client) keepWholeOpen(ctx context.Context, whole job.Slot) error {
	for {
		r, revision, err := c.record(ctx, whole)
		switch {
		case err != nil:
			return err
		case r == nil, r.State == job.Succeeded, r.State == job.Running && r.Error != "": // it is being cancelled
			return nil
		}
		if err := c.writeOpenWhole(ctx, *r, revision); !errors.Is(err, job.ErrConflict) {
			return err
		}
	}
}

// writeOpenWhole writes r, the record of a split slot at revision, without its outcome.
func (c *Client) writeOpenWhole(ctx context.Context, r job.Record, revision uint64) error {
	if r.State.Final() {
		now, err := c.cfg.Now(ctx)
		if err != nil {
			return err
		}
		if err := c.announceReopened(ctx, r, now); err != nil {
			return err
		}
	}
	_, err := c.store(ctx, core.ReopenWhole(r), revision)
	return err
}
