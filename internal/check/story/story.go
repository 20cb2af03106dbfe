// Package story explains one slot: what happened to it in order, what it waits for now,
// or why it does not exist.
//
// A story is derived from what is stored for other reasons: the slot's record, its
// message, the job's definition and lock, the nodes and the kept events. Nothing is
// stored for stories alone. A story is a hint: its newest step may be missing.
//
//   - record.go: a slot with a record.
//   - waiting.go: a slot with a message and no record.
//   - absent.go: a slot with neither.
package story

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Story is what happened to one slot, or why it does not exist.
type Story struct {
	Slot job.Slot

	// State is empty if the slot does not exist.
	State job.State

	// Due is the time that lateness is measured against.
	Due time.Time

	// Steps are in the order of their times.
	Steps []Step

	// Why says in a sentence what the slot waits for, why it ended, or why it does not
	// exist.
	Why string

	// Before and After are the job's nearest slots. They are set if the job's plan does
	// not contain this slot.
	Before, After time.Time
}

// Step is one thing that happened, or will happen.
type Step struct {
	Time time.Time
	What StepKind
	Node string

	// Peer is the node that was declared dead, or that the slot was taken over from.
	Peer string

	// Attempt and Fence are set if the step concerns an attempt.
	Attempt int
	Fence   uint64

	// Text describes the step to a person.
	Text string
}

// StepKind is one of these constants, the outcome that the slot ended in, or the kind of
// an event.
type StepKind string

const (
	StepDue       StepKind = "due"
	StepPublished StepKind = "published"
	StepStarted   StepKind = "started"
	StepEnded     StepKind = "ended"
	StepReopened  StepKind = "reopened"
	StepNext      StepKind = "next" // in the future
)

// Reader reads what is stored about single slots.
type Reader struct {
	// Record returns the slot's record and its revision. The record is nil if there is none.
	Record func(context.Context, job.Slot) (*job.Record, uint64, error)

	// Message returns the slot's message, in the stream or as a timer, or nil.
	Message func(context.Context, job.Slot) (*stream.WaitingSlot, error)
}

// Explain returns the story of slot s at the broker's time now. It only reads.
func Explain(ctx context.Context, from attach.Parts, of Reader, s job.Slot, now time.Time) (Story, error) {
	t := explainer{Parts: from, Reader: of, now: now, story: Story{Slot: s, Due: s.At}}
	if err := t.read(ctx); err != nil {
		return Story{}, err
	}
	var err error
	switch {
	case t.record != nil:
		t.explainRecord()
		if t.record.Shards > 0 {
			err = t.explainShards(ctx)
		}
	case t.message != nil:
		t.explainWaiting()
	default:
		err = t.explainAbsent(ctx)
	}
	slices.SortStableFunc(t.story.Steps, func(x, y Step) int { return x.Time.Compare(y.Time) })
	return t.story, err
}

// explainer holds what is known of one slot, and builds its story.
type explainer struct {
	attach.Parts
	Reader
	now   time.Time
	story Story

	record   *job.Record // nil: none
	revision uint64      // of the record
	message  *stream.WaitingSlot
	entry    *plans.Entry // the job's; nil: no such job, or entryErr
	entryErr error        // why the job's entry cannot be read
	removal  string       // says that the job was removed; empty: it was not
	lock     core.Lock    // the job's; zero: none, or lockErr
	lockErr  error        // why the lock cannot be read
	nodes    []exchange.NodeEvent
	handlers map[string]exchange.Handlers // of the live nodes
	events   []job.Event
}

func (t *explainer) read(ctx context.Context) (err error) {
	s := t.story.Slot
	// The message is read before the record. If a worker takes the message between the two
	// reads, the record shows the slot.
	if t.message, err = t.Message(ctx, s); err != nil {
		return err
	}
	if t.record, t.revision, err = t.Record(ctx, s); err != nil {
		return err
	}
	e, marker, err := t.Jobs.Read(ctx, s.Job)
	switch {
	case err == nil:
		t.entry = &e
	case exchange.IsUnreadable(err):
		t.entryErr = err
	case !errors.Is(err, job.ErrNotFound):
		return err
	default:
		if err := t.readRemoval(ctx, marker > 0); err != nil {
			return err
		}
	}
	switch t.lock, _, err = t.Locks.Read(ctx, s.Job); {
	case exchange.IsUnreadable(err):
		t.lockErr = err
	case err != nil && !errors.Is(err, job.ErrNotFound):
		return err
	}
	if t.nodes, err = t.Nodes.List(ctx); err != nil {
		return err
	}
	t.Alive()
	if err := t.readHandlers(ctx); err != nil {
		return err
	}
	return t.readEvents(ctx)
}

// readHandlers reads the lists of handlers of a slot that waits: only its story needs them.
func (t *explainer) readHandlers(ctx context.Context) (err error) {
	if t.message == nil || t.record != nil {
		return nil
	}
	var live []string
	for _, ev := range t.nodes {
		if ev.Node.Worker && ev.Alive(t.now) {
			live = append(live, ev.Name)
		}
	}
	t.handlers, err = t.Handlers.Latest(ctx, live)
	t.Alive()
	return err
}

func (t *explainer) readEvents(ctx context.Context) error {
	since := t.story.Slot.At
	if t.record != nil {
		since = t.record.Published
	}
	for _, of := range slices.Compact([]string{t.story.Slot.Job, exchange.NoJob}) { // a job may have the name NoJob
		for e, err := range t.Fleet.Events(ctx, kv.EventFilter{Job: of, Since: since.Add(-time.Minute)}) {
			t.Alive()
			if err != nil && !exchange.IsUnreadable(err) {
				return err
			}
			if err == nil && t.concerns(e) {
				t.events = append(t.events, e)
			}
		}
	}
	return nil
}

// readRemoval sets removal. The registry records only that the job was removed. The event of the
// order names the operator.
// The marker of the removal stays for a day (removed).
func (t *explainer) readRemoval(ctx context.Context, removed bool) error {
	by := ""
	for e, err := range t.Fleet.Events(ctx, kv.EventFilter{Job: t.story.Slot.Job, Kind: job.EventOrdered}) {
		t.Alive()
		switch {
		case err != nil && !exchange.IsUnreadable(err):
			return err
		case err == nil && e.Order == "remove":
			by = fmt.Sprintf(" by %s at %s", e.Node, stamp(e.Time))
		}
	}
	if !removed && by == "" {
		return nil
	}
	t.removal = fmt.Sprintf("Job %s was removed from the registry%s", t.story.Slot.Job, by)
	return nil
}

// concerns reports whether the event is about the slot, or about the death of a node that
// ran it.
func (t *explainer) concerns(e job.Event) bool {
	if e.ID == t.story.Slot.ID() {
		return true
	}
	return e.Kind == job.EventFenced && t.record != nil &&
		slices.ContainsFunc(t.record.Attempts, func(a job.Attempt) bool { return a.Node == e.Peer })
}

func (t *explainer) step(at time.Time, what StepKind, node, format string, args ...any) *Step {
	t.story.Steps = append(t.story.Steps, Step{Time: at.UTC(), What: what, Node: node, Text: fmt.Sprintf(format, args...)})
	return &t.story.Steps[len(t.story.Steps)-1]
}

// why adds a sentence to Story.Why.
func (t *explainer) why(format string, args ...any) {
	if t.story.Why != "" {
		t.story.Why += " "
	}
	t.story.Why += fmt.Sprintf(format, args...)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
