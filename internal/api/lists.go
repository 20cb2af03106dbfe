package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/job"
)

// PageRequest asks for a page of a listing.
type PageRequest struct {
	After string `json:"after,omitempty" doc:"the member next of the previous answer: the listing continues there"`
	Limit int    `json:"limit,omitempty" doc:"how many rows at most, up to 5000; a page may have fewer although others follow"`
	by
}

func (p PageRequest) cursor() client.Cursor { return client.Cursor(p.After) }

func (p PageRequest) limit() (int, error) {
	if p.Limit < 0 {
		return 0, fmt.Errorf("%w limit %d: must be at least 0", job.ErrInvalid, p.Limit)
	}
	return min(cmp.Or(p.Limit, row.MaxRows), row.MaxRows), nil
}

// page is a page that fits into a message.
type page[T row.Listed] struct{ row.Page[T] }

func newPage[T row.Listed](rows []T, limit int, next client.Cursor, unreadable []error) page[T] {
	return page[T]{row.NewPage(rows, limit, next, unreadable)}
}

// fit shortens the page to an answer of at most size bytes.
func (p page[T]) fit(size int64) (any, error) {
	const more = 1024 // for next and the commas
	head, err := json.Marshal(row.Page[T]{Unreadable: p.Unreadable})
	if err != nil {
		return nil, err
	}
	left := size - int64(len(head)) - more
	for i, r := range p.Rows {
		data, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if left -= int64(len(data)) + 1; left < 0 {
			p.Cut(i)
			break
		}
	}
	return p, nil
}

// SlotsRequest asks for a page of slots.
type SlotsRequest struct {
	Job    string      `json:"job,omitempty" doc:"only of this job"`
	States []job.State `json:"states,omitempty" doc:"only in one of these states"`
	Since  time.Time   `json:"since,omitzero" doc:"only those planned at this time or later"`
	Ended  time.Time   `json:"ended_since,omitzero" doc:"only those that ended at this time or later, whenever they were planned"`
	PageRequest
}

// NextRequest asks for the coming slots of a job.
type NextRequest struct {
	Job   string    `json:"job"`
	From  time.Time `json:"from,omitzero" doc:"only slots after this time, for example the last slot of the previous answer; left out: now"`
	Until time.Time `json:"until,omitzero" doc:"only slots before this time"`
	Count int       `json:"count,omitempty" doc:"how many slots at most, up to 5000; left out: 10"`
	by
}

// ComingSlots are the coming slots of a job.
type ComingSlots struct {
	Slots  []row.Next `json:"slots"`
	Paused bool       `json:"paused" doc:"the slots fall due only if the job is resumed"`
	Start  string     `json:"start" doc:"what starts the job, in words"`
}

func listOrders() []order {
	return []order{
		newOrder("job.ls", "List the jobs in the order of their last write.", func(ctx context.Context, c *client.Client, in PageRequest) (page[client.JobRow], error) {
			limit, err := in.limit()
			if err != nil {
				return page[client.JobRow]{}, err
			}
			list, err := c.Jobs(ctx, client.JobFilter{After: in.cursor()})
			return newPage(list.Jobs, limit, "", list.Unreadable), err
		}),
		newOrder("job.next", "List the coming slots of a job.", coming),
		newOrder("slot.ls", "List the slots, oldest first.", func(ctx context.Context, c *client.Client, in SlotsRequest) (page[client.SlotRow], error) {
			limit, err := in.limit()
			if err != nil {
				return page[client.SlotRow]{}, err
			}
			list, err := c.ListSlots(ctx, client.SlotFilter{Job: in.Job, States: in.States, Since: in.Since, EndedSince: in.Ended, After: in.cursor(), Limit: limit})
			return newPage(list.Slots, limit, list.Next, list.Unreadable), err
		}),
		newOrder("node.ls", "List the nodes in the order of their start.", func(ctx context.Context, c *client.Client, in PageRequest) (page[client.NodeRow], error) {
			limit, err := in.limit()
			if err != nil {
				return page[client.NodeRow]{}, err
			}
			list, err := c.Nodes(ctx, client.NodeFilter{After: in.cursor()})
			return newPage(list.Nodes, limit, "", list.Unreadable), err
		}),
	}
}

func coming(ctx context.Context, c *client.Client, in NextRequest) (ComingSlots, error) {
	const few = 10
	if in.Count < 0 {
		return ComingSlots{}, fmt.Errorf("%w count %d: must be at least 0", job.ErrInvalid, in.Count)
	}
	in.Count = cmp.Or(in.Count, few)
	of, err := c.Next(ctx, in.Job)
	if err != nil {
		return ComingSlots{}, err
	}
	out := ComingSlots{Slots: []row.Next{}, Paused: of.Paused, Start: of.Job.Plan().Start()}
	out.Slots = slices.AppendSeq(out.Slots, row.Coming(of, in.From, in.Until, min(in.Count, row.MaxRows)))
	return out, nil
}
