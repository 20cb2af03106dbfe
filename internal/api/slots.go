package api

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/job"
)

// SlotRequest is a request about one slot.
type SlotRequest struct {
	ID string `json:"id" doc:"like report:2026-11-21T07:00:00Z"`
	by
}

// SlotDetails is what is stored about a slot.
type SlotDetails struct {
	ID       string          `json:"id"`
	State    job.State       `json:"state"`
	Record   json.RawMessage `json:"record,omitempty" doc:"the stored value, as docs/protocol.md describes it"`
	Revision uint64          `json:"revision,omitempty"`
	Queue    string          `json:"queue,omitempty" doc:"the queue in which the slot waits"`
	Due      time.Time       `json:"due,omitzero"`
}

// Story is what happened to a slot, or why it does not exist.
type Story struct {
	client.Story
	Steps []client.Step `json:"steps"` // never left out
}

func slotOrders() []order {
	return []order{
		newOrder("slot.show", "Return all that is stored about a slot.", showSlot),
		newOrder("slot.explain", "Say what happened to a slot, or why it does not exist.", explain),
		newOrder("slot.retry", "Give a slot that ended without success a new start.", func(ctx context.Context, c *client.Client, in SlotRequest) (row.Retry, error) {
			r, err := c.Retry(ctx, in.ID)
			return row.Retried(r), err
		}),
		newOrder("slot.cancel", "End a slot that waits or runs, for good.", cancelSlot),
	}
}

func showSlot(ctx context.Context, c *client.Client, in SlotRequest) (SlotDetails, error) {
	d, err := c.Slot(ctx, in.ID)
	if err != nil {
		return SlotDetails{}, err
	}
	out := SlotDetails{ID: d.ID, State: d.State, Revision: d.Revision, Queue: d.Queue, Due: d.Due}
	if d.Record != nil {
		out.Record, err = json.Marshal(d.Record)
	}
	return out, err
}

func explain(ctx context.Context, c *client.Client, in SlotRequest) (Story, error) {
	s, err := c.Explain(ctx, in.ID)
	return Story{s, append([]client.Step{}, s.Steps...)}, err
}

var errStillRuns = fmt.Errorf("the slot was asked to end and still runs: repeat the request to keep waiting: %w", job.ErrUnknown)

func cancelSlot(ctx context.Context, c *client.Client, in SlotRequest) (row.Cancel, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	asked := false
	r, err := c.Cancel(ctx, in.ID, func(client.CancelWait) { asked = true })
	if err != nil && asked && ctx.Err() != nil {
		err = errStillRuns
	}
	return row.Cancelled(r), err
}
