package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/check/story"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// SlotRow is a row of the listing of slots.
type SlotRow struct {
	ID  string `json:"id"`
	Job string `json:"job"`

	// Slot is the slot's instant. It is zero for a triggered run.
	Slot  time.Time `json:"slot,omitzero"`
	State job.State `json:"state"`

	// Attempt is the number of attempts so far. Fence is that of the last one. Node runs the
	// slot, or wrote the outcome.
	Attempt int    `json:"attempt,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`
	Node    string `json:"node,omitempty"`
	Queue   string `json:"queue,omitempty"`

	// Due is when the slot was due: see job.Run.Due. Published is when the broker stored the slot's
	// message: zero while a triggered run waits for Due.
	Due       time.Time `json:"due,omitzero"`
	Published time.Time `json:"published,omitzero"`

	// Started is when the last attempt started, and Finished when the slot got its outcome.
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`

	// Error is the error of the last attempt, or the reason of the outcome. Output is what
	// Record.Output keeps of the last attempt.
	Error  string `json:"error,omitempty"`
	Output string `json:"output,omitempty"`

	// Shadow is true if the last attempt did not do the work: see job.ErrShadow.
	Shadow bool `json:"shadow,omitempty"`

	// First is when the first attempt started. It is zero if none has started, or if the record
	// no longer contains that attempt.
	First time.Time `json:"-"`
}

// When returns the time by which slots are ordered: the slot's instant. For a triggered run it is
// the time when it was published, or, if it was not published, the time when it was cancelled or
// is due.
func (s SlotRow) When() time.Time {
	switch {
	case !s.Slot.IsZero():
		return s.Slot
	case !s.Published.IsZero():
		return s.Published
	case !s.Finished.IsZero():
		return s.Finished
	}
	return s.Due
}

// Cursor returns the row's position: slots are ordered by their time, oldest first.
func (s SlotRow) Cursor() Cursor { return timeCursor(s.When(), s.ID) }

func compareSlots(x, y SlotRow) int {
	return cmp.Or(x.When().Compare(y.When()), strings.Compare(x.ID, y.ID))
}

// pendingSlot returns the row of a slot that has a message and no record.
func pendingSlot(w stream.WaitingSlot) SlotRow {
	row := SlotRow{
		ID: w.Slot.ID(), Job: w.Slot.Job, Slot: w.Slot.At, State: job.Pending,
		Queue: w.Queue, Due: w.Due.UTC(), Published: w.Published.UTC(),
	}
	if w.Timer {
		row.Published = time.Time{} // not yet published for workers
	}
	return row
}

// recordedSlot returns the row of a slot that has a record.
func recordedSlot(e kv.LedgerEntry) SlotRow {
	row := SlotRow{
		ID: e.Slot.ID(), Job: e.Slot.Job, Slot: e.Slot.At, State: e.State, Attempt: e.Attempt,
		Node: e.Node, Queue: e.Queue, Due: e.Due.UTC(), Published: e.Published.UTC(),
		Finished: e.Finished.UTC(), Error: e.Error, Output: e.Output, Shadow: e.IsShadow(),
	}
	if n := len(e.Attempts); n > 0 {
		row.Fence, row.Started = e.Attempts[n-1].Fence, e.Attempts[n-1].Started.UTC()
		if first := e.Attempts[0]; first.Number <= 1 {
			row.First = first.Started.UTC()
		}
	}
	if e.State == job.Running {
		row.Fence = e.Revision // the claim is the record's last write
	}
	return row
}

// SlotError reports why an operation on a slot is not possible. Nothing was changed.
type SlotError struct {
	Slot job.Slot

	// State is the slot's state, in which the operation is not possible: the error matches
	// job.ErrConflict. If State is empty, there is no such slot, and the error matches
	// job.ErrNotFound.
	State job.State
	Why   string
}

func (e *SlotError) Error() string { return fmt.Sprintf("slot %q: %s", e.Slot.ID(), e.Why) }

// Is matches job.ErrNotFound if there is no such slot, else job.ErrConflict.
func (e *SlotError) Is(target error) bool {
	if e.State == "" {
		return target == job.ErrNotFound
	}
	return target == job.ErrConflict
}

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
func (c *Client) slotConflict(ctx context.Context, s job.Slot) error {
	conflict := &SlotConflictError{Slot: s}
	if r, _, err := c.cfg.Ledger.Read(ctx, s); err == nil {
		conflict.State, conflict.By = r.State, r.Node
	}
	c.cfg.Alive()
	return conflict
}

// record returns the slot's record, read at the ledger's leader, and the revision at which to
// write the next one. The record is nil if there is none.
func (c *Client) record(ctx context.Context, s job.Slot) (*job.Record, uint64, error) {
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
func (c *Client) message(ctx context.Context, s job.Slot) (*stream.WaitingSlot, error) {
	if s.Token != "" { // read the timer of this key before any listing: there may be very many timers
		t, _, err := c.cfg.Timers.Read(ctx, s)
		c.cfg.Alive()
		if err == nil {
			return &stream.WaitingSlot{Message: t.Message, Queue: t.Queue, Payload: t.Payload, Timer: true}, nil
		}
		if !errors.Is(err, job.ErrNotFound) {
			return nil, err
		}
	}
	w, err := c.firstMessage(s, c.cfg.Slots.Waiting(ctx, stream.WaitingFilter{Job: s.Job}))
	if w != nil || err != nil || s.Token == "" {
		return w, err
	}
	return c.firstMessage(s, c.cfg.Timers.Waiting(ctx, stream.WaitingFilter{Job: s.Job}))
}

// firstMessage returns the first message of the slot that a worker will receive, else a stranded
// one.
func (c *Client) firstMessage(s job.Slot, all iter.Seq2[stream.WaitingSlot, error]) (stranded *stream.WaitingSlot, err error) {
	for w, err := range readable(c, all, nil) {
		switch {
		case err != nil:
			return nil, err
		case w.Slot != s && w.Slot.Whole() != s:
		case !w.Stranded:
			return &w, nil
		case stranded == nil:
			stranded = &w
		}
	}
	return stranded, nil
}

// SlotDetails is what is stored about one slot. Its JSON is that of "cronce slot show".
type SlotDetails struct {
	SlotRow

	// Publisher is the node or the operator that published the slot. JobRevision is the revision of
	// the job from which it was computed. MaxAttempts, RetryAt and Attempts are those of the
	// record: see job.Record.
	Publisher   string        `json:"publisher,omitempty"`
	JobRevision uint64        `json:"job_revision,omitempty"`
	MaxAttempts int           `json:"max_attempts,omitempty"`
	RetryAt     time.Time     `json:"retry_at,omitzero"`
	Attempts    []job.Attempt `json:"attempts,omitempty"`

	// Count and Last are set for a range of missed slots: their number, and the instant of
	// the last one.
	Count int       `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`

	// Result is what the handler set with Run.SetResult. ResultDropped is its size in bytes
	// if it was too large for the server's max_payload.
	Result        json.RawMessage `json:"result,omitempty"`
	ResultDropped int             `json:"result_dropped,omitempty"`

	// Record is the slot's record, at Revision. It is nil while the slot waits to be run for
	// the first time. In the result of Cancel, Revision is zero.
	Record   *job.Record `json:"-"`
	Revision uint64      `json:"-"`
}

// recordedDetails returns what a record says of its slot.
func recordedDetails(r job.Record, revision uint64) SlotDetails {
	return SlotDetails{
		SlotRow:   recordedSlot(kv.LedgerEntry{Record: r, Revision: revision}),
		Publisher: r.Publisher, JobRevision: r.JobRevision, MaxAttempts: r.MaxAttempts, RetryAt: r.RetryAt.UTC(),
		Attempts: r.Attempts, Count: r.Count, Last: r.Last.UTC(), Result: r.Result, ResultDropped: r.ResultDropped, Record: &r, Revision: revision,
	}
}

// Slot returns what is stored about a slot. If there is no such slot, the error is a *SlotError
// that wraps job.ErrNotFound. A login of the role caller may not read a run that is due and has not
// begun: the error then wraps job.ErrDenied.
func (c *Client) Slot(ctx context.Context, id string) (SlotDetails, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return SlotDetails{}, err
	}
	r, revision, w, err := c.find(ctx, s)
	switch {
	case err != nil:
		return SlotDetails{}, err
	case r != nil:
		return recordedDetails(*r, revision), nil
	}
	return SlotDetails{SlotRow: pendingSlot(*w), Publisher: w.Node, JobRevision: w.JobRevision}, nil
}

// find returns the slot's record, or, if there is none yet, its message. If there is neither, the
// error is a *SlotError.
func (c *Client) find(ctx context.Context, s job.Slot) (r *job.Record, revision uint64, w *stream.WaitingSlot, err error) {
	for range 2 { // a worker may take the message between the two reads: then there is a record
		if r, revision, err = c.record(ctx, s); r != nil || err != nil {
			return r, revision, nil, err
		}
		if w, err = c.message(ctx, s); w != nil || err != nil {
			return nil, revision, w, err
		}
	}
	return nil, 0, nil, &SlotError{Slot: s, Why: "it has no record, and does not wait in the stream"}
}

// store writes the record at revision.
func (c *Client) store(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	r.Nonce = rand.Text()
	won, err := c.cfg.Ledger.Write(ctx, r, revision)
	c.cfg.Alive()
	return won, err
}

// pause waits for d. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	if wire.Wait(ctx, d) {
		return nil
	}
	return context.Cause(ctx)
}

// Story is what happened to one slot, or why it does not exist. Its JSON is that of "cronce
// slot explain".
type Story struct {
	ID string `json:"id"`

	// State is empty if the slot does not exist.
	State job.State `json:"state,omitempty" doc:"left out if the slot does not exist"`

	// Due is the time that lateness is measured against.
	Due time.Time `json:"-"`

	// Why says in a sentence what the slot waits for, why it ended, or why it does not exist.
	Why string `json:"why" doc:"what the slot waits for, why it ended, or why it does not exist"`

	// Steps are in the order of their times.
	Steps []Step `json:"steps,omitempty"`

	// Before and After are the IDs of the job's nearest slots. They are set if the job's plan
	// does not contain this slot.
	Before string `json:"before,omitempty" doc:"the nearest slots of the job, if its plan does not contain this one"`
	After  string `json:"after,omitempty"`
}

// Step is one thing that happened, or will happen.
type Step struct {
	Time time.Time `json:"time"`

	// AfterDue is how long after Story.Due it happened, in milliseconds. Zero: Due is not known.
	AfterDue float64 `json:"after_due_ms,omitempty"`

	What StepKind `json:"what"`
	Node string   `json:"node,omitempty"`

	// Peer is the node that was declared dead, or that the slot was taken over from.
	Peer string `json:"peer,omitempty" doc:"the node that was declared dead, or that the slot was taken over from"`

	// Attempt and Fence are set if the step concerns an attempt.
	Attempt int    `json:"attempt,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`

	// Text describes the step to a person.
	Text string `json:"text"`
}

// StepKind is one of these constants, the outcome that the slot ended in, or the kind of
// an event.
type StepKind string

const (
	StepDue       = StepKind(story.StepDue)       // the slot fell due
	StepPublished = StepKind(story.StepPublished) // the broker stored the slot's message
	StepStarted   = StepKind(story.StepStarted)   // an attempt started
	StepEnded     = StepKind(story.StepEnded)     // an attempt ended
	StepReopened  = StepKind(story.StepReopened)  // an operator gave the slot a new start
	StepNext      = StepKind(story.StepNext)      // the next step, in the future
)

// Explain tells what happened to a slot, what it waits for, or why it does not exist. It
// only reads. The newest step may be missing.
func (c *Client) Explain(ctx context.Context, id string) (Story, error) {
	s, err := job.ParseSlotID(id)
	if err != nil {
		return Story{}, err
	}
	now, err := c.cfg.Now(ctx)
	if err != nil {
		return Story{}, err
	}
	found, err := story.Explain(ctx, c.cfg, story.Reader{Record: c.record, Message: c.message}, s, now)
	if err != nil {
		return Story{}, err
	}
	out := Story{ID: s.ID(), State: found.State, Due: found.Due, Why: found.Why}
	for _, step := range found.Steps {
		after := 0.0
		if !found.Due.IsZero() {
			after = milliseconds(step.Time.Sub(found.Due))
		}
		out.Steps = append(out.Steps, Step{step.Time, after, StepKind(step.What), step.Node, step.Peer, step.Attempt, step.Fence, step.Text})
	}
	if !found.Before.IsZero() {
		out.Before = job.NewSlot(s.Job, found.Before).ID()
	}
	if !found.After.IsZero() {
		out.After = job.NewSlot(s.Job, found.After).ID()
	}
	return out, nil
}

// SlotStates returns all states of slots in listings.
func SlotStates() []job.State {
	return []job.State{
		job.Pending, job.Waiting, job.Running, job.Retrying, job.Succeeded, job.Failed,
		job.Skipped, job.Missed, job.Expired, job.Cancelled,
	}
}
