package pages

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// slowNews is a broker that takes a while for each of its events, and has removed the last one.
type slowNews struct {
	attach.News
	takes time.Duration
	kept  uint64
	sent  *uint64
}

func (slowNews) Follow(string, func(job.Event)) (func(), error) { return func() {}, nil }
func (slowNews) Reconnected() <-chan struct{}                   { return nil }
func (n slowNews) LastEvent(context.Context) (uint64, error)    { return n.kept + 1, nil }
func (n slowNews) EventsAfter(ctx context.Context, _ string, _ *wire.Cursor, f func(job.Event, uint64, error) bool) error {
	for *n.sent < n.kept && ctx.Err() == nil {
		time.Sleep(n.takes)
		if *n.sent++; !f(job.Event{Kind: job.EventSucceeded}, *n.sent, nil) {
			break
		}
	}
	return ctx.Err()
}

func TestActivityHasEachKeptEventOnItsPagesOfEarlierEvents(t *testing.T) {
	t.Parallel()
	var list []client.Event
	for n := range uint64(2*activityRows + 7) {
		list = append(list, client.Event{Event: job.Event{Kind: job.EventFailed, Job: "report"}, Sequence: n + 1})
	}
	latest := append(slices.Clone(list), make([]client.Event, activityRows/2)...) // these are not kept
	seen := map[uint64]int{}
	for pages := 1; ; pages++ {
		var d activityView
		d.show(latest, "")
		for _, e := range d.Rows {
			seen[e.Sequence]++
		}
		if d.Before == 0 || pages > 9 {
			break
		}
		latest = list[:d.Before-1]
	}
	for _, e := range list {
		if seen[e.Sequence] != 1 {
			t.Fatalf("event %d is on %d pages", e.Sequence, seen[e.Sequence])
		}
	}
}

func TestActivityHasAllKeptEventsOfASlowBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read := func(patience time.Duration) ([]client.Event, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c := client.Attach(attach.Parts{News: slowNews{takes: windowTime / 2, kept: 5, sent: new(uint64)}})
			list, _, err := keptEvents(ctx, c, 0)
			return list, err
		}
		if list, err := read(time.Minute); len(list) != 5 || err != nil {
			t.Errorf("%d events, %v, want 5", len(list), err)
		}
		if list, err := read(windowTime * 3 / 2); err == nil {
			t.Errorf("%d of 5 events, and no error", len(list))
		}
	})
}
