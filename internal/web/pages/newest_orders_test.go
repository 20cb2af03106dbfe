package pages

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// ordered is a fleet whose events are orders at these times.
type ordered struct {
	attach.Fleet
	at []time.Time
}

func (o ordered) Events(_ context.Context, f kv.EventFilter) iter.Seq2[job.Event, error] {
	return func(yield func(job.Event, error) bool) {
		for _, at := range o.at {
			if !at.Before(f.Since) && !yield(job.Event{Time: at}, nil) {
				return
			}
		}
	}
}

func TestNewestOrdersAreTheNewestAlthoughThereAreMany(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	many := func(from time.Time) (at []time.Time) {
		for i := range 2*ordersRead + 5 {
			at = append(at, from.Add(time.Duration(i)*time.Millisecond))
		}
		return at
	}
	last := now.Add(-30 * time.Minute)
	for name, tc := range map[string]struct {
		at     []time.Time
		newest time.Time
		shown  int
	}{
		"none":                       {nil, time.Time{}, 0},
		"few":                        {[]time.Time{last.AddDate(0, 0, -3), last}, last, 2},
		"one after many":             {append(many(now.AddDate(0, 0, -3)), last), last, 1},
		"many in the last minute":    {many(now.Add(-30 * time.Second)), now.Add(-30*time.Second + (2*ordersRead+4)*time.Millisecond), 7},
		"many, none of the last day": {many(now.AddDate(0, 0, -3)), now.AddDate(0, 0, -3).Add((2*ordersRead + 4) * time.Millisecond), 7},
	} {
		r := &shell.Request{Request: httptest.NewRequest(http.MethodGet, "/", nil), Client: client.Attach(attach.Parts{Fleet: ordered{at: tc.at}})}
		list, err := newestOrders(r, "report", now)
		if err != nil || len(list) != tc.shown || tc.shown > 0 && !list[0].Time.Equal(tc.newest) {
			t.Errorf("%s: %+v, %v, want %d, the first at %v", name, list, err, tc.shown, tc.newest)
		}
	}
}
