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

// Slots is the stream of slots; *kv.Slots is one.
type Slots interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
	Publish(queue string, m core.Message, payload []byte) (wait func(context.Context) (duplicate bool, err error), err error)
}

// Fleet has the waiting slots, the events, and requests to nodes; *kv.Store is one.
type Fleet interface {
	Waiting(ctx context.Context, f kv.WaitingFilter) iter.Seq2[kv.WaitingSlot, error]
	Events(ctx context.Context, f kv.EventFilter) iter.Seq2[job.Event, error]
	Tell(ctx context.Context, e job.Event) error
	Emit(kind, job string, data []byte) error
	AskCancel(ctx context.Context, node string, req core.CancelRequest) (core.CancelAnswer, error)
}

// Watermark is the time up to which every slot was published; *kv.Watermark is one.
type Watermark interface {
	Read(ctx context.Context) (core.Watermark, uint64, error)
}

// Locks are the jobs' locks against overlap; *kv.Locks is one.
type Locks interface {
	Read(ctx context.Context, name string) (core.Lock, uint64, error)
}

// Peers proves nodes dead; *node.Peers is one.
type Peers interface {
	Dead(ctx context.Context, name, by string) (dead bool, wait time.Duration, err error)
}

// SlotError reports why an operation on a slot is not possible. Nothing was changed.
type SlotError struct {
	Slot job.Slot

	// State is the slot's state. If it is empty, there is no such slot, and the error matches
	// job.ErrNotFound.
	State job.State
	Why   string
}

func (e *SlotError) Error() string { return fmt.Sprintf("slot %q: %s", e.Slot.ID(), e.Why) }

// Is matches job.ErrNotFound if there is no such slot.
func (e *SlotError) Is(target error) bool { return target == job.ErrNotFound && e.State == "" }

// SlotConflictError reports that another writer wrote the slot's record after this operation
// had read it. The operation wrote nothing. It matches job.ErrConflict.
type SlotConflictError struct {
	Slot  job.Slot
	State job.State // the state now; empty: unknown
	By    string    // the node or operator that wrote it
}

func (e *SlotConflictError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("slot %q was changed meanwhile: this operation changed nothing", e.Slot.ID())
	}
	return fmt.Sprintf("slot %q was changed meanwhile by %q, and is %s: this operation changed nothing", e.Slot.ID(), e.By, e.State)
}

// Is matches job.ErrConflict.
func (e *SlotConflictError) Is(target error) bool { return target == job.ErrConflict }

// slotConflict returns the SlotConflictError for a write that lost.
func (c *Control) slotConflict(ctx context.Context, s job.Slot) error {
	conflict := &SlotConflictError{Slot: s}
	if r, _, err := c.cfg.Ledger.Read(ctx, s); err == nil {
		conflict.State, conflict.By = r.State, r.Node
	}
	c.cfg.Alive()
	return conflict
}

// record returns the slot's record, read at the ledger's leader, and the revision to write
// over. The record is nil if there is none.
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

// message returns the slot's message, in the stream or as a timer, or nil. For a slot that is
// split into shards it returns the message of any shard.
func (c *Control) message(ctx context.Context, s job.Slot) (*kv.WaitingSlot, error) {
	w, err := c.among(s, c.cfg.Slots.Waiting(ctx, kv.WaitingFilter{Job: s.Job}))
	if w != nil || err != nil || s.Token == "" {
		return w, err
	}
	// The timer of this key is read before all timers, which may be very many.
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

// among returns the first message of the slot that a worker will receive, else a stranded
// one.
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

// SlotDetails is what is stored of a slot: its record, or its message if it has no record.
type SlotDetails struct {
	Record   *job.Record
	Revision uint64
	Waiting  *kv.WaitingSlot
}

// Slot returns what is stored of a slot. If there is no such slot, the error is a *SlotError
// that matches job.ErrNotFound.
func (c *Control) Slot(ctx context.Context, s job.Slot) (f SlotDetails, err error) {
	// The message is read before the record. If a worker takes the message between the two
	// reads, the record shows the slot.
	if f.Waiting, err = c.message(ctx, s); err != nil {
		return SlotDetails{}, err
	}
	if f.Record, f.Revision, err = c.record(ctx, s); err != nil {
		return SlotDetails{}, err
	}
	switch {
	case f.Record != nil:
		f.Waiting = nil
	case f.Waiting == nil:
		return SlotDetails{}, &SlotError{Slot: s, Why: "it has no record, and does not wait in the stream"}
	}
	return f, nil
}

// store writes the record at revision.
func (c *Control) store(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	r.Nonce = rand.Text()
	won, err := c.cfg.Ledger.Write(ctx, r, revision)
	c.cfg.Alive()
	return won, err
}

// emit publishes an event once, as workers do. A repeated copy would look like a second
// outcome.
func (c *Control) emit(e job.Event) {
	e.V, e.Node = codec.Version, c.cfg.Operator
	if data, err := json.Marshal(e); err == nil {
		_ = c.cfg.Fleet.Emit(string(e.Kind), e.Job, data)
	}
}

// pause waits for d. It returns the cause if ctx ends first.
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
