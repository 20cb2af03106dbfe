package recent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/web/pages/recent"
	"github.com/cronce-io/cronce/job"
)

func event(kind job.EventKind, id string, sequence uint64) client.Event {
	return client.Event{Event: job.Event{Kind: kind, ID: id}, Sequence: sequence}
}

func ids(e *recent.Events) (all []string) {
	list, _ := e.Get()
	for _, one := range list {
		all = append(all, one.ID)
	}
	return all
}

func TestEventsAreRememberedWhileSomethingAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var events chan client.Event
		open := 0
		e := recent.Events{Context: ctx, Subscribe: func(context.Context) (<-chan client.Event, func(), error) {
			open++
			events = make(chan client.Event)
			return events, func() { open-- }, nil
		}}
		if got := ids(&e); got != nil {
			t.Errorf("at first: %q", got)
		}
		synctest.Wait()
		events <- event(job.EventSucceeded, "a", 0)
		events <- event(job.EventFailed, "kept", 7)
		events <- event(job.EventOutput, "output", 0)
		close(events) // it was too slow
		synctest.Wait()
		events <- event(job.EventRetrying, "b", 0)
		synctest.Wait()
		if got := ids(&e); fmt.Sprint(got) != "[a b]" || open != 1 {
			t.Errorf("remembered: %q, with %d subscriptions", got, open)
		}
		for i := range 1000 {
			events <- event(job.EventSucceeded, fmt.Sprint(i), 0)
		}
		synctest.Wait()
		if got := ids(&e); len(got) != 300 || got[299] != "999" {
			t.Errorf("%d are remembered, the last one is %q", len(got), got[len(got)-1])
		}
		time.Sleep(2 * time.Minute) // of the bubble
		synctest.Wait()
		if open != 0 {
			t.Errorf("%d subscriptions although nothing asks", open)
		}
		if got := ids(&e); got != nil {
			t.Errorf("afterwards: %d", len(got))
		}
		cancel()
		e.Wait()
		if open != 0 {
			t.Errorf("%d subscriptions at the end", open)
		}
	})
}
