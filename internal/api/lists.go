package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// mostRows is how many rows one answer lists at most; it bounds what a node holds.
const mostRows = 5000

// pageOf is what a request for a page says.
type pageOf struct {
	After string `json:"after,omitempty" doc:"the next of the answer before: the listing goes on there"`
	Limit int    `json:"limit,omitempty" doc:"at most so many rows, at most 5000; there may be fewer, and a next all the same"`
	by
}

func (p pageOf) cursor() client.Cursor { return client.Cursor(p.After) }

func (p pageOf) limit() (int, error) {
	switch {
	case p.Limit < 0:
		return 0, fmt.Errorf("%w limit %d: at least 0", job.ErrInvalid, p.Limit)
	case p.Limit == 0:
		return mostRows, nil
	}
	return min(p.Limit, mostRows), nil
}

// Page is a part of a listing, in its order.
type Page[T row] struct {
	Rows       []T      `json:"rows"`
	Next       string   `json:"next,omitempty" doc:"there may be more: ask again with this as after; left out: that was all"`
	Unreadable []string `json:"unreadable,omitempty" doc:"why something was left out: the first of the reasons"`
}

// row of a listing.
type row interface{ Cursor() client.Cursor }

// newPage is at most limit rows. next is the place after which rows had been left
// out before.
func newPage[T row](rows []T, limit int, next client.Cursor, unreadable []error) Page[T] {
	const most = 5
	p := Page[T]{Rows: rows, Next: string(next)}
	for _, err := range unreadable[:min(len(unreadable), most)] {
		p.Unreadable = append(p.Unreadable, line(err))
	}
	p.keep(limit)
	return p
}

// keep shortens the page to its first n rows; at least one.
func (p *Page[T]) keep(n int) {
	if n = max(n, 1); n < len(p.Rows) {
		p.Rows = p.Rows[:n]
		p.Next = string(p.Rows[n-1].Cursor())
	}
	if p.Rows == nil {
		p.Rows = []T{}
	}
}

// within shortens the page to what an answer of so many bytes holds.
func (p Page[T]) within(size int64) (any, error) {
	const more = 1024 // for the next, the commas
	head, err := json.Marshal(Page[T]{Unreadable: p.Unreadable})
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
			p.keep(i)
			break
		}
	}
	return p, nil
}

// ListingSlots asks for slots.
type ListingSlots struct {
	Job    string      `json:"job,omitempty" doc:"of this job only"`
	States []job.State `json:"states,omitempty" doc:"in one of these only"`
	Since  time.Time   `json:"since,omitzero" doc:"planned at this time or later"`
	Ended  time.Time   `json:"ended_since,omitzero" doc:"ended at this time or later, whenever they were planned"`
	pageOf
}

// Coming asks for the coming slots of a job.
type Coming struct {
	Job   string    `json:"job"`
	From  time.Time `json:"from,omitzero" doc:"strictly after this time; left out: now. The last slot of an answer, to go on"`
	Until time.Time `json:"until,omitzero" doc:"before this time"`
	Count int       `json:"count,omitempty" doc:"at most so many, at most 5000; left out: 10"`
	by
}

// ComingSlots are they. Those of a paused job fall due only if it is resumed.
type ComingSlots struct {
	Slots  []ComingSlot `json:"slots"`
	Paused bool         `json:"paused"`
	Start  string       `json:"start" doc:"what starts the job, in words"`
}

// ComingSlot is one of them.
type ComingSlot struct {
	Slot  time.Time `json:"slot"`
	Local time.Time `json:"local" doc:"in the job's time zone"`
}

func listOrders() []order {
	return []order{
		newOrder("job.ls", "List the jobs, the one that was written last at the end.", func(ctx context.Context, c *client.Client, in pageOf) (Page[client.JobRow], error) {
			limit, err := in.limit()
			if err != nil {
				return Page[client.JobRow]{}, err
			}
			list, err := c.Jobs(ctx, client.JobFilter{After: in.cursor()})
			return newPage(list.Jobs, limit, "", list.Unreadable), err
		}),
		newOrder("job.next", "List the coming slots of a job.", coming),
		newOrder("slot.ls", "List the slots, oldest first.", func(ctx context.Context, c *client.Client, in ListingSlots) (Page[client.SlotRow], error) {
			limit, err := in.limit()
			if err != nil {
				return Page[client.SlotRow]{}, err
			}
			list, err := c.ListSlots(ctx, client.SlotFilter{Job: in.Job, States: in.States, Since: in.Since, EndedSince: in.Ended, After: in.cursor(), Limit: limit})
			return newPage(list.Slots, limit, list.Next, list.Unreadable), err
		}),
		newOrder("node.ls", "List the nodes, the one that started first at the beginning.", func(ctx context.Context, c *client.Client, in pageOf) (Page[client.NodeRow], error) {
			limit, err := in.limit()
			if err != nil {
				return Page[client.NodeRow]{}, err
			}
			list, err := c.Nodes(ctx, client.NodeFilter{After: in.cursor()})
			return newPage(list.Nodes, limit, "", list.Unreadable), err
		}),
	}
}

func coming(ctx context.Context, c *client.Client, in Coming) (ComingSlots, error) {
	const few = 10
	if in.Count < 0 {
		return ComingSlots{}, fmt.Errorf("%w count %d: at least 0", job.ErrInvalid, in.Count)
	}
	in.Count = cmp.Or(in.Count, few)
	of, err := c.Next(ctx, in.Job)
	if err != nil {
		return ComingSlots{}, err
	}
	out := ComingSlots{Slots: []ComingSlot{}, Paused: of.Paused, Start: of.Job.Plan().Start()}
	if in.From.IsZero() {
		in.From = of.Now
	}
	for at := range of.Slots(in.From, in.Until, min(in.Count, mostRows)) {
		out.Slots = append(out.Slots, ComingSlot{at.UTC(), at.In(of.Location())})
	}
	return out, nil
}
