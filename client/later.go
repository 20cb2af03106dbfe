package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

// orderLater has a node order a run for later, because this login may not set timers. The node does all
// that Trigger does.
func (c *Client) orderLater(ctx context.Context, slot job.Slot, o TriggerOptions) (Run, error) {
	request, err := json.Marshal(struct {
		Key     string          `json:"key"`
		At      time.Time       `json:"at"`
		Payload json.RawMessage `json:"payload,omitempty"`
		By      string          `json:"by,omitempty"`
	}{slot.Token, o.At.UTC(), o.Payload, c.cfg.Operator})
	if err != nil {
		return Run{}, err
	}
	data, err := c.cfg.Fleet.AskLater(ctx, slot.Job, request)
	if err != nil {
		return Run{}, fmt.Errorf("trigger %s later: %w", slot, err)
	}
	var a struct {
		New       bool
		State     job.State
		Queue     string
		Due       time.Time
		MovedFrom string `json:"moved_from"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return Run{}, fmt.Errorf("trigger %s later: read the node's answer: %w", slot, err)
	}
	return Run{Slot: slot, New: a.New, State: a.State, Queue: a.Queue, Due: a.Due, MovedFrom: a.MovedFrom}, nil
}
