package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// SlotStates returns all states of slots in listings.
func SlotStates() []job.State {
	return []job.State{
		job.Pending, job.Running, job.Retrying, job.Succeeded, job.Failed,
		job.Skipped, job.Missed, job.Expired, job.Cancelled,
	}
}

// SlotFilter selects slots. Its zero value selects all.
type SlotFilter struct {
	// Job selects the slots of one job. Empty: of all jobs.
	Job string

	// States selects the slots in one of these states. Empty: in any.
	States []job.State

	// Since selects the slots planned at this time or later. Zero: all.
	Since time.Time

	// After takes the slots after a place.
	After Cursor

	// Limit bounds the rows, and the memory that the listing takes. 0: no limit.
	Limit int
}

func (f SlotFilter) check() error {
	if f.Job != "" {
		if err := codec.ValidateName("job", f.Job); err != nil {
			return err
		}
	}
	for _, state := range f.States {
		if !slices.Contains(SlotStates(), state) {
			return fmt.Errorf("%w state %.80q: want one of %v", job.ErrInvalid, string(state), SlotStates())
		}
	}
	if f.Limit < 0 {
		return fmt.Errorf("%w limit %d: must be at least 0", job.ErrInvalid, f.Limit)
	}
	return f.After.checkTime()
}

func (f SlotFilter) takes(s ListedSlot) bool {
	return f.takesState(s.State) && !s.when().Before(f.Since) && (f.After == "" || s.Cursor() > f.After)
}

func (f SlotFilter) takesState(s job.State) bool {
	return len(f.States) == 0 || slices.Contains(f.States, s)
}

// ListedSlot is a row of the listing of slots.
type ListedSlot struct {
	ID        string    `json:"id"`
	Job       string    `json:"job"`
	Slot      time.Time `json:"slot,omitzero"`
	State     job.State `json:"state"`
	Attempt   int       `json:"attempt,omitempty"`
	Fence     uint64    `json:"fence,omitempty"`
	Node      string    `json:"node,omitempty"`
	Queue     string    `json:"queue,omitempty"`
	Due       time.Time `json:"due,omitzero"`
	Published time.Time `json:"published,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Finished  time.Time `json:"finished,omitzero"`
	Error     string    `json:"error,omitempty"`
	Output    string    `json:"output,omitempty"`

	// First is when the first attempt started. It is zero if none has started, or if that
	// attempt is not kept.
	First time.Time `json:"-"`
}

// when is the time that slots are ordered by: the instant. For a triggered run it is when it
// was published; for one that is not published, when it was cancelled or is due.
func (s ListedSlot) when() time.Time {
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
func (s ListedSlot) Cursor() Cursor { return timeCursor(s.when(), s.ID) }

func compareSlots(x, y ListedSlot) int {
	return cmp.Or(x.when().Compare(y.when()), strings.Compare(x.ID, y.ID))
}

// PendingSlot returns the row of a slot that has a message and no record.
func PendingSlot(w kv.WaitingSlot) ListedSlot {
	row := ListedSlot{
		ID: w.Slot.ID(), Job: w.Slot.Job, Slot: w.Slot.At, State: job.Pending,
		Queue: w.Queue, Due: w.Due.UTC(), Published: w.Published.UTC(),
	}
	if w.Timer {
		row.Published = time.Time{} // not yet published for workers
	}
	return row
}

// RecordedSlot returns the row of a slot that has a record.
func RecordedSlot(e kv.LedgerEntry) ListedSlot {
	row := ListedSlot{
		ID: e.Slot.ID(), Job: e.Slot.Job, Slot: e.Slot.At, State: e.State, Attempt: e.Attempt,
		Node: e.Node, Queue: e.Queue, Due: e.Due.UTC(), Published: e.Published.UTC(),
		Finished: e.Finished.UTC(), Error: e.Error, Output: e.Output,
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

// SlotList is a listing of slots, oldest first.
type SlotList struct {
	Slots []ListedSlot

	// Next is the place after which the limit left something out. Empty: nothing.
	// There may be fewer rows than the limit, even none, and more to come.
	Next Cursor

	// Unreadable are the errors of values that were left out.
	Unreadable []error
}

// ListSlots lists the slots with a record, and those that wait in the streams. It reads the
// streams before the ledger. If a worker takes a slot between the two reads, the record shows
// it, so no slot is missing.
//
// With a limit, ListSlots keeps only the earliest waiting slots, up to an end. Each of them
// may turn out to have a record. Rows after that end would be incomplete, so the listing
// stops there.
func (c *Control) ListSlots(ctx context.Context, f SlotFilter) (SlotList, error) {
	var list SlotList
	if err := f.check(); err != nil {
		return list, err
	}
	waiting, end, err := c.waiting(ctx, f, &list)
	if err != nil {
		return list, err
	}
	cut := false
	err = c.recorded(ctx, f, &list, func(row ListedSlot) {
		delete(waiting, row.ID)
		if !f.takes(row) {
			return
		}
		if list.Slots = append(list.Slots, row); f.Limit > 0 && len(list.Slots) >= 2*f.Limit {
			list.Slots, cut = earliest(list.Slots, f.Limit), true
		}
	})
	if err != nil {
		return list, err
	}
	list.Slots = slices.AppendSeq(list.Slots, maps.Values(waiting))
	slices.SortFunc(list.Slots, compareSlots)
	list.end(f.Limit, cut, end)
	return list, nil
}

// end cuts a sorted listing at the limit, or at the end of the waiting slots that are known.
// cut reports whether records were dropped before.
func (l *SlotList) end(limit int, cut bool, end Cursor) {
	if end != "" {
		l.Slots = slices.DeleteFunc(l.Slots, func(s ListedSlot) bool { return s.Cursor() > end })
		l.Next = end
	}
	if limit > 0 && (len(l.Slots) > limit || cut && len(l.Slots) == limit) {
		l.Slots = l.Slots[:limit]
		l.Next = l.Slots[limit-1].Cursor()
	}
}

// earliest returns the first n rows.
func earliest(rows []ListedSlot, n int) []ListedSlot {
	slices.SortFunc(rows, compareSlots)
	clear(rows[n:]) // free their outputs
	return rows[:n]
}

// waiting returns the waiting slots that the filter selects, by ID. With a limit, they are
// complete only up to end. An empty end means that they are complete.
func (c *Control) waiting(ctx context.Context, f SlotFilter, list *SlotList) (byID map[string]ListedSlot, end Cursor, err error) {
	byID = map[string]ListedSlot{}
	if !f.takesState(job.Pending) {
		return byID, "", nil
	}
	for w, err := range c.cfg.Fleet.Waiting(ctx, kv.WaitingFilter{Job: f.Job}) {
		c.cfg.Alive()
		switch {
		case err != nil && !core.IsUnreadable(err):
			return nil, "", err
		case err != nil:
			list.Unreadable = append(list.Unreadable, err)
			continue
		}
		row := PendingSlot(w)
		if !f.takes(row) || end != "" && row.Cursor() > end {
			continue
		}
		if byID[row.ID] = row; f.Limit > 0 && len(byID) >= 2*f.Limit {
			kept := earliest(slices.Collect(maps.Values(byID)), f.Limit)
			end = kept[f.Limit-1].Cursor()
			clear(byID)
			for _, row := range kept {
				byID[row.ID] = row
			}
		}
	}
	return byID, end, nil
}

func (c *Control) recorded(ctx context.Context, f SlotFilter, list *SlotList, found func(ListedSlot)) error {
	filter := kv.ListFilter{Job: f.Job}
	if !f.Since.IsZero() {
		// A record is written after its slot's instant. The minute allows for a caller's
		// clock that differs from the broker's.
		filter.Since = f.Since.Add(-time.Minute)
	}
	for e, err := range c.cfg.Ledger.List(ctx, filter) {
		c.cfg.Alive()
		switch {
		case err != nil && !core.IsUnreadable(err):
			return err
		case err != nil:
			list.Unreadable = append(list.Unreadable, err)
		default:
			found(RecordedSlot(e))
		}
	}
	return nil
}
