package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// OfSlot is a request about one slot.
type OfSlot struct {
	ID string `json:"id" doc:"like report:2026-11-21T07:00:00Z"`
	by
}

// Slot is what stands on the broker of a slot.
type Slot struct {
	ID       string          `json:"id"`
	State    job.State       `json:"state"`
	Record   json.RawMessage `json:"record,omitempty" doc:"as docs/protocol.md has the values of the ledger"`
	Revision uint64          `json:"revision,omitempty"`
	Queue    string          `json:"queue,omitempty" doc:"of one that waits"`
	Due      time.Time       `json:"due,omitzero"`
}

// Story is what happened to a slot.
type Story struct {
	ID    string    `json:"id"`
	State job.State `json:"state,omitempty"`
	Why   string    `json:"why"`
	Steps []Step    `json:"steps"`
}

// Step is one thing that happened, or will.
type Step struct {
	Time    time.Time       `json:"time"`
	What    client.StepKind `json:"what"`
	Node    string          `json:"node,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Fence   uint64          `json:"fence,omitempty"`
	Text    string          `json:"text"`
}

// Reopened is a slot with a new start.
type Reopened struct {
	ID    string    `json:"id"`
	State job.State `json:"state"`
	Left  int       `json:"attempts_left"`
}

// Ended is a slot that was cancelled, or had been faster.
type Ended struct {
	ID    string    `json:"id"`
	State job.State `json:"state"`
	Error string    `json:"error,omitempty"`
}

func slotOrders() []order {
	return []order{
		newOrder("slot.show", "Tell what stands of a slot.", ofSlot(showSlot)),
		newOrder("slot.explain", "Tell the story of a slot, or why there is none.", ofSlot(explain)),
		newOrder("slot.retry", "Give a slot that did not succeed a new start.", ofSlot(func(ctx context.Context, c *client.Client, id string) (Reopened, error) {
			r, err := c.Retry(ctx, id)
			return Reopened{id, r.State, r.Left}, err
		})),
		newOrder("slot.cancel", "End a slot that waits or runs, for good.", ofSlot(cancelSlot)),
	}
}

func ofSlot[Out any](f func(context.Context, *client.Client, string) (Out, error)) func(context.Context, *client.Client, OfSlot) (Out, error) {
	return func(ctx context.Context, c *client.Client, in OfSlot) (Out, error) {
		s, err := job.ParseSlotID(in.ID)
		if err != nil {
			var none Out
			return none, err
		}
		return f(ctx, c, s.ID())
	}
}

func showSlot(ctx context.Context, c *client.Client, id string) (Slot, error) {
	f, err := c.Slot(ctx, id)
	if err != nil {
		return Slot{}, err
	}
	out := Slot{ID: id, State: f.State, Revision: f.Revision, Queue: f.Queue, Due: f.Due}
	if f.Record != nil {
		out.Record, err = json.Marshal(f.Record)
	}
	return out, err
}

func explain(ctx context.Context, c *client.Client, id string) (Story, error) {
	told, err := c.Explain(ctx, id)
	out := Story{ID: id, State: told.State, Why: told.Why, Steps: []Step{}}
	for _, step := range told.Steps {
		out.Steps = append(out.Steps, Step{step.Time, step.What, step.Node, step.Attempt, step.Fence, step.Text})
	}
	return out, err
}

var errStillRuns = errors.New("the slot was asked to end and still runs: repeat the request to keep waiting")

func cancelSlot(ctx context.Context, c *client.Client, id string) (Ended, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience/2, errStillRuns)
	defer cancel()
	r, err := c.Cancel(ctx, id, nil)
	if err != nil && errors.Is(context.Cause(ctx), errStillRuns) {
		err = errors.Join(context.Cause(ctx), job.ErrUnknown)
	}
	return Ended{id, r.State, r.Error}, err
}
