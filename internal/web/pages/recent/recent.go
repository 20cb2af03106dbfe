// Package recent remembers the last events of a namespace that the broker does not keep, such as
// successes, while a page shows them.
package recent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

const (
	// most bounds the events that are remembered.
	most = 300

	// idle is how long nothing asks for the events until they are forgotten.
	idle = time.Minute

	// again is the pause before a subscription that has ended is renewed.
	again = time.Second
)

// Events remembers events from the first question on. It is safe for concurrent use; set its
// fields before.
type Events struct {
	// Context ends the subscription.
	Context context.Context

	// Subscribe returns a channel of events, which is closed if its reader is too slow.
	Subscribe func(context.Context) (events <-chan client.Event, leave func(), err error)

	ended sync.WaitGroup

	mu      sync.Mutex
	list    []client.Event
	since   time.Time
	asked   time.Time
	running bool
}

// Get returns the remembered events, oldest first, and since when there are any.
func (e *Events) Get() (list []client.Event, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked = time.Now(); !e.running && e.Context.Err() == nil {
		e.running, e.since = true, e.asked
		e.ended.Go(e.run)
	}
	return slices.Clone(e.list), e.since
}

// Wait returns when the subscription has ended, after the Context has.
func (e *Events) Wait() { e.ended.Wait() }

// run listens until nothing asks any more.
func (e *Events) run() {
	check := time.NewTicker(again)
	defer check.Stop()
	var events <-chan client.Event
	leave := func() {}
	defer func() { leave() }()
	for {
		if events == nil {
			if told, left, err := e.Subscribe(e.Context); err == nil {
				events, leave = told, left
			}
		}
		select {
		case <-e.Context.Done():
			return
		case event, ok := <-events:
			if !ok {
				leave()
				events, leave = nil, func() {}
				break
			}
			e.add(event)
		case <-check.C:
			if e.forget() {
				return
			}
		}
	}
}

// add remembers an event, unless the broker keeps it or there are too many of its kind.
func (e *Events) add(event client.Event) {
	if event.Sequence > 0 || event.Kind == job.EventOutput || event.Kind == job.EventProgress {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.list = append(e.list, event); len(e.list) > most {
		e.list = slices.Delete(e.list, 0, len(e.list)-most)
	}
}

// forget ends the listening if nothing has asked for a while.
func (e *Events) forget() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.asked) < idle {
		return false
	}
	e.running, e.list = false, nil
	return true
}
