package pages

import (
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
	More       bool          // there may be older ones
	Unreadable []error
}

// slotRow is a row, with the times that people ask for.
type slotRow struct {
	client.SlotRow
	At   time.Time     // the slot's instant, or when it was triggered
	Took time.Duration // of the last attempt
	Late time.Duration // from due to the first start
}

func newSlotRow(s client.SlotRow) slotRow {
	r := slotRow{SlotRow: s, At: s.Slot}
	for _, t := range []time.Time{s.Published, s.Due, s.Finished} {
		if r.At.IsZero() {
			r.At = t
		}
	}
	if !s.Started.IsZero() && !s.Finished.IsZero() {
		r.Took = s.Finished.Sub(s.Started)
	}
	if first := s.First; !first.IsZero() && !s.Due.IsZero() && first.After(s.Due) {
		r.Late = first.Sub(s.Due)
	}
	return r
}

// Fields are the fields whose errors the page shows.
func (slotList) Fields() []string {
	return []string{"job", "state", "range", "order", "since", "after"}
}

// Ranges are the values of the field "range".
func (slotList) Ranges() map[string]string {
	return map[string]string{"hour": "an hour", "day": "a day", "week": "a week"}
}

// ranges are how far back a list of slots goes.
var ranges = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour}

// slots lists slots. The newest come first, of a bounded range; oldest first, there are pages.
func (s *Site) slots() shell.Page {
	return shell.Page{Path: "/slots", Nav: "slots", File: "slots.html", Show: func(r *shell.Request) (any, error) {
		d := slotList{States: client.SlotStates(), Range: r.Form.One("range", "day", "hour", "week"), Order: r.Form.One("order", "newest", "oldest")}
		f := client.SlotFilter{Job: r.Form.Get("job"), Limit: slotRows, Newest: d.Order == "newest"}
		states := []string{""}
		for _, state := range d.States {
			states = append(states, string(state))
		}
		if d.State = r.Form.One("state", states...); d.State != "" {
			f.States = []job.State{job.State(d.State)}
		}
		if f.Job != "" {
			if err := codec.ValidateName("job", f.Job); err != nil {
				r.Form.Wrong("job", "%v", err)
			}
		}
		f.Since = r.Form.Time("since", r.Prefs.Location)
		if f.Since.IsZero() {
			f.Since = time.Now().Add(-ranges[d.Range])
		}
		after := client.Cursor(r.Form.Get("after"))
		if !f.Newest {
			f.After = after
		}
		if !r.Form.OK() {
			return d, nil
		}
		list, err := r.Client.ListSlots(r.Context(), f)
		if err != nil {
			return d, err
		}
		d.Next, d.Unreadable = list.Next, list.Unreadable
		for _, row := range list.Slots {
			d.Rows = append(d.Rows, newSlotRow(row))
		}
		if f.Newest {
			slices.Reverse(d.Rows)
			d.More = len(d.Rows) == slotRows
		}
		return d, nil
	}}
}
