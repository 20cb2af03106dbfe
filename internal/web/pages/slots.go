package pages

import (
	"context"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// slotRows is how many rows the list of slots shows.
const slotRows = 100

// slotList is what the list of slots shows.
type slotList struct {
	Rows   []slotRow
	States []job.State // that can be chosen
	State  string
	Range  string
	Order  string

	Next       client.Cursor // of the next page; "": there is none
	More       bool          // there may be older slots
	Unreadable []error

	// Unlisted reports that the slots that wait are left out, because there are too many to read in time.
	Unlisted bool
}

// slotRow is a row, with the times that people ask for.
type slotRow struct {
	client.SlotRow
	At   time.Time     // the slot's instant, or when it was triggered
	Took time.Duration // of the last attempt
	Late time.Duration // from due to the first start
}

func newSlotRow(s client.SlotRow) slotRow {
	r := slotRow{SlotRow: s, At: s.When()}
	if !s.Started.IsZero() && !s.Finished.IsZero() {
		r.Took = s.Finished.Sub(s.Started)
	}
	if !s.First.IsZero() && !s.Due.IsZero() {
		r.Late = max(0, s.First.Sub(s.Due))
	}
	return r
}

// Fields are the fields whose errors the page shows.
func (slotList) Fields() []string {
	return []string{"job", "state", "range", "order", "since", "after"}
}

// slotRange is how far back a list of slots goes.
type slotRange struct {
	choice
	length time.Duration
}

var slotRanges = []slotRange{{choice{"hour", "an hour"}, time.Hour}, {choice{"day", "a day"}, 24 * time.Hour}, {choice{"week", "a week"}, 7 * 24 * time.Hour}}

// Ranges are the values of the field "range".
func (slotList) Ranges() []slotRange { return slotRanges }

// waitingTime bounds how long the list of the newest slots waits for those without a record. All runs
// that are ordered for later must be read, and there may be hundreds of thousands.
const waitingTime = time.Second

// listSlots lists slots. If reading those that wait takes too long, it lists only those that have a record.
func listSlots(r *shell.Request, f client.SlotFilter) (list client.SlotList, unlisted bool, err error) {
	if !f.Newest {
		list, err = r.Client.ListSlots(r.Context(), f)
		return list, false, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitingTime)
	defer cancel()
	list, err = r.Client.ListSlots(ctx, f)
	if err == nil || ctx.Err() == nil {
		return list, false, err
	}
	if len(f.States) == 0 {
		f.States = client.SlotStates()
	}
	f.States = slices.DeleteFunc(f.States, func(s job.State) bool { return s == job.Pending })
	if len(f.States) == 0 {
		_, err = r.Client.LastSequence(r.Context()) // does the broker answer?
		return client.SlotList{}, true, err
	}
	list, err = r.Client.ListSlots(r.Context(), f)
	return list, true, err
}

// slots is the list of slots: the newest ones of a range, or all from the oldest on, in pages.
func (s *Site) slots() shell.Page {
	return shell.Page{Path: "/slots", Nav: "slots", File: "slots.html", Show: func(r *shell.Request) (any, error) {
		d := slotList{States: client.SlotStates(), Range: r.Form.One("range", "day", "hour", "week"), Order: r.Form.One("order", "newest", "oldest")}
		f := client.SlotFilter{Job: r.Form.Get("job"), Limit: slotRows, Newest: d.Order == "newest"}
		if d.State = r.Form.One("state", append([]string{""}, codec.Strings(d.States...)...)...); d.State != "" {
			f.States = []job.State{job.State(d.State)}
		}
		if err := codec.ValidateJobFilter(f.Job); err != nil {
			r.Form.Wrong("job", "%v", err)
		}
		f.Since = r.Form.Time("since", r.Prefs.Location)
		if f.Since.IsZero() {
			chosen := slices.IndexFunc(slotRanges, func(c slotRange) bool { return c.Value == d.Range })
			f.Since = time.Now().Add(-slotRanges[chosen].length)
		}
		after := client.Cursor(r.Form.Get("after"))
		if !f.Newest {
			f.After = after
		}
		if !r.Form.OK() {
			return d, nil
		}
		list, unlisted, err := listSlots(r, f)
		if err != nil {
			return d, err
		}
		d.Unlisted = unlisted
		d.Next, d.Unreadable = list.Next, list.Unreadable
		d.Rows = codec.Map(list.Slots, newSlotRow)
		if f.Newest {
			slices.Reverse(d.Rows)
			d.More = len(d.Rows) == slotRows
		}
		return d, nil
	}}
}
