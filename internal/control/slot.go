package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/control/story"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Slots is the stream of slots to run; *kv.Slots is one.
type Slots interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
	Publish(queue string, m core.Message, payload []byte) (wait func(context.Context) (duplicate bool, err error), err error)
}

// Fleet is who is told and asked beside the buckets; *kv.Store is one.
type Fleet interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
	Events(ctx context.Context, f kv.EventFilter) iter.Seq2[job.Event, error]
	Tell(ctx context.Context, e job.Event) error
	Emit(kind, job string, data []byte) error
	AskCancel(ctx context.Context, node string, req core.CancelRequest) (core.CancelAnswer, error)
}

// Watermark is up to when every slot was published; *kv.Watermark is one.
type Watermark interface {
	Read(ctx context.Context) (core.Watermark, uint64, error)
}

// Locks are the jobs' guards against overlap; *kv.Locks is one.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
}

// Peers proves nodes dead; *node.Peers is one.
type Peers interface {
	Dead(ctx context.Context, name, by string) (dead bool, wait time.Duration, err error)
}

// SlotError says why an order about a slot cannot be carried out: nothing was
// changed.
type SlotError struct {
	Slot job.Slot

	// State is the slot's; empty when there is no such slot, which then answers
	// to job.ErrNotFound.
	State job.State
	Why   string
}

func (e *SlotError) Error() string { return fmt.Sprintf("slot %q: %s", e.Slot.ID(), e.Why) }

// Is answers to job.ErrNotFound.
func (e *SlotError) Is(target error) bool { return target == job.ErrNotFound && e.State == "" }

// SlotConflictError says that somebody else wrote the slot's record between our
// look at it and our write: nothing of ours was written. It answers to
// job.ErrConflict.
type SlotConflictError struct {
	Slot  job.Slot
	State job.State // as it stands now; empty: it cannot be said
	By    string    // who wrote that
}

func (e *SlotConflictError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("slot %q was changed meanwhile by somebody else, and is left as it is", e.Slot.ID())
	}
	return fmt.Sprintf("slot %q was changed meanwhile by %q: it is %s now, and is left so", e.Slot.ID(), e.By, e.State)
}

// Is answers to job.ErrConflict.
func (e *SlotConflictError) Is(target error) bool { return target == job.ErrConflict }

// slotConflict finds out who was faster.
func (c *Control) slotConflict(ctx context.Context, s job.Slot) error {
	conflict := &SlotConflictError{Slot: s}
	if r, _, err := c.cfg.Ledger.Read(ctx, s); err == nil {
		conflict.State, conflict.By = r.State, r.Node
	}
	c.cfg.Alive()
	return conflict
}

// record is the slot's record as the leader has it, nil for none, and the
// revision to write over.
func (c *Control) record(ctx context.Context, s job.Slot) (*job.Record, uint64, error) {
	r, revision, err := c.cfg.Ledger.Read(ctx, s)
	c.cfg.Alive()
	switch {
	case errors.Is(err, job.ErrNotFound):
		return nil, revision, nil
	case err != nil:
		return nil, 0, err
	}
	return &r, revision, nil
}

// message is the slot's message, in the stream or as a timer, nil for none. Of a
// slot that is split it is that of any part.
func (c *Control) message(ctx context.Context, s job.Slot) (*kv.WaitingSlot, error) {
	w, err := c.among(s, c.cfg.Slots.Waiting(ctx, kv.WaitingFilter{Job: s.Job}))
	if w != nil || err != nil || s.Token == "" {
		return w, err
	}
	// The one timer before all of them: there may be very many.
	t, _, err := c.cfg.Timers.Read(ctx, s)
	c.cfg.Alive()
	switch {
	case err == nil:
		return &kv.WaitingSlot{Message: t.Message, Queue: t.Queue, Payload: t.Payload, Timer: true}, nil
	case !errors.Is(err, job.ErrNotFound):
		return nil, err
	}
	return c.among(s, c.cfg.Timers.Waiting(ctx, kv.WaitingFilter{Job: s.Job}))
}

// among is the first of them that somebody will get, else any.
func (c *Control) among(s job.Slot, all iter.Seq2[kv.WaitingSlot, error]) (stranded *kv.WaitingSlot, err error) {
	for w, err := range all {
		c.cfg.Alive()
		switch {
		case err != nil && !core.IsUnreadable(err):
			return nil, err
		case err != nil || w.Slot != s && w.Slot.Whole() != s:
		case !w.Stranded:
			return &w, nil
		case stranded == nil:
			stranded = &w
		}
	}
	return stranded, nil
}

// Found is all that stands on the broker of a slot: its record, or if it has none
// the message that waits.
type Found struct {
	Record   *job.Record
	Revision uint64
	Waiting  *kv.WaitingSlot
}

// Slot finds a slot. If there is none the error is a *SlotError, which answers to
// job.ErrNotFound.
func (c *Control) Slot(ctx context.Context, s job.Slot) (f Found, err error) {
	// The message first: a slot that is claimed and gone from the stream in
	// between shows by its record.
	if f.Waiting, err = c.message(ctx, s); err != nil {
		return Found{}, err
	}
	if f.Record, f.Revision, err = c.record(ctx, s); err != nil {
		return Found{}, err
	}
	switch {
	case f.Record != nil:
		f.Waiting = nil
	case f.Waiting == nil:
		return Found{}, &SlotError{Slot: s, Why: "it has no record, and does not wait in the stream"}
	}
	return f, nil
}

// store writes the record at revision, with a nonce of its own.
func (c *Control) store(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	r.Nonce = rand.Text()
	won, err := c.cfg.Ledger.Write(ctx, r, revision)
	c.cfg.Alive()
	return won, err
}

// tell says what became of a slot to whoever listens. As workers do it, once: a
// second copy would read as a second outcome.
func (c *Control) tell(e job.Event) {
	e.V, e.Node = codec.Version, c.cfg.Who
	if data, err := json.Marshal(e); err == nil {
		_ = c.cfg.Fleet.Emit(string(e.Kind), e.Job, data)
	}
}

// pause waits, and reports the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Explain tells what happened to a slot, what it waits for, or why it does not exist. It
// only reads. The newest step may be missing.
func (c *Control) Explain(ctx context.Context, s job.Slot) (story.Story, error) {
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return story.Story{}, err
	}
	return story.Tell(ctx, story.Sources{
		Jobs: c.cfg.Jobs, Ledger: c.cfg.Ledger, Nodes: c.cfg.Nodes, Locks: c.cfg.Locks, Watermark: c.cfg.Watermark, Events: c.cfg.Fleet,
		Message: c.message, Retention: c.cfg.Settings.Retention, Alive: c.cfg.Alive,
	}, s, now)
}
