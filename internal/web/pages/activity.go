package pages

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

const (
	// window is how many kept events the page reads, and activityRows how many it shows at most.
	window       = 1000
	activityRows = 200

	// windowTime bounds the wait for the next kept event. Usually the reading ends earlier, at the newest
	// kept event. If the broker has removed that event, only this limit ends it.
	windowTime = time.Second
)

// activityView is what the page of events shows, the newest first.
type activityView struct {
	Rows  []client.Event
	Kinds []job.EventKind
	Kind  string

	// Before is the sequence before which there are earlier events. 0: there are none.
	Before uint64

	// Live is the time since which the page also shows the events that the broker does not keep. Zero:
	// the page shows earlier events, and has only those that the broker keeps.
	Live time.Time
}

// Values of the filter "kind" that stand for several kinds.
const (
	kindOrders   = "orders"
	kindTroubles = "troubles"
)

var troubles = []job.EventKind{job.EventFailed, job.EventMissed, job.EventExpired, job.EventFenced, job.EventTakeover, job.EventRefused, job.EventAlert}

// activity is the page of the events, among them the orders that people gave.
func (s *Site) activity() shell.Page {
	return shell.Page{Path: "/activity", Nav: "activity", File: "activity.html", Show: func(r *shell.Request) (any, error) {
		d := activityView{Kinds: append([]job.EventKind{job.EventSucceeded, job.EventRetrying}, exchange.KeptKinds()...)}
		d.Kind = r.Form.One("kind", append([]string{"", kindOrders, kindTroubles}, codec.Strings(d.Kinds...)...)...)
		name := r.Form.Get("job")
		if err := codec.ValidateJobFilter(name); err != nil {
			r.Form.Wrong("job", "%v", err)
		}
		before, err := strconv.ParseUint(r.Form.Get("before"), 10, 64)
		if err != nil && r.Form.Get("before") != "" {
			r.Form.Wrong("before", "%q is not the number of an event", r.Form.Get("before"))
		}
		if !r.Form.OK() {
			return d, nil
		}
		kept, first, err := keptEvents(r.Context(), r.Client, before)
		if err != nil {
			return nil, err
		}
		if before == 0 {
			var unkept []client.Event
			if unkept, d.Live, err = s.recent(r.Context()); err != nil {
				return nil, err
			}
			kept = append(kept, unkept...)
			slices.SortStableFunc(kept, func(x, y client.Event) int { return x.Time.Compare(y.Time) })
		}
		d.Before = first
		d.show(kept, name)
		return d, nil
	}}
}

// show adds the newest events that the filter selects. If it leaves out kept ones, it moves Before so
// that the page of earlier events has them.
func (d *activityView) show(list []client.Event, name string) {
	for _, e := range slices.Backward(list) {
		switch {
		case name != "" && e.Job != name || !d.takes(e.Kind):
		case len(d.Rows) < activityRows:
			d.Rows = append(d.Rows, e)
		case e.Sequence > 0:
			d.Before = max(d.Before, e.Sequence+1)
		}
	}
}

func (d activityView) takes(kind job.EventKind) bool {
	switch d.Kind {
	case "":
		return true
	case kindOrders:
		return kind == job.EventOrdered
	case kindTroubles:
		return slices.Contains(troubles, kind)
	}
	return string(kind) == d.Kind
}

// Fields are the fields whose errors the page shows.
func (activityView) Fields() []string { return []string{"job", "kind", "before"} }

// keptEvents reads the last kept events, or those before a sequence, oldest first. first is the
// sequence before which there may be more, or 0.
func keptEvents(ctx context.Context, c *client.Client, before uint64) (list []client.Event, first uint64, err error) {
	last, err := c.LastSequence(ctx)
	if err != nil {
		return nil, 0, err
	}
	if before > 0 {
		last = min(last, before-1)
	}
	after := uint64(0)
	if last > window {
		after = last - window
		first = after + 1
	}
	if last == 0 {
		return nil, 0, nil
	}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(windowTime, cancel)
	defer idle.Stop()
	for e, err := range c.Events(reading, client.EventFilter{After: &after}) {
		switch {
		case err != nil && !exchange.IsUnreadable(err):
			return nil, 0, err
		case e.Sequence == 0:
			continue // the broker does not keep it
		case err == nil && e.Sequence <= last:
			list = append(list, e)
		}
		if idle.Reset(windowTime); e.Sequence >= last {
			break
		}
	}
	return list, first, ctx.Err()
}
