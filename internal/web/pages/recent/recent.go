// Package recent remembers the newest events that the broker does not keep, such as successes,
// while a page shows them.
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
	// maxEvents bounds the events that are remembered.
	maxEvents = 300

	// idle is the time without a call of Get after which the events are forgotten.
	idle = time.Minute

	// check is how often run checks whether it is idle, and whether it must subscribe again.
	check = time.Second
)

// Events remembers events from the first call of Get on. It is safe for concurrent use; set its
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

// Get returns the remembered events, oldest first, and since when they are remembered.
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

// run receives events until Get is not called any more.
func (e *Events) run() {
	tick := time.NewTicker(check)
	defer tick.Stop()
	var events <-chan client.Event
	leave := func() {}
	defer func() { leave() }()
	for {
		if events == nil {
			if joined, left, err := e.Subscribe(e.Context); err == nil {
				events, leave = joined, left
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
		case <-tick.C:
			if e.forget() {
				return
			}
		}
	}
}

// add remembers an event, unless the broker keeps it or its kind is too frequent.
func (e *Events) add(event client.Event) {
	if event.Sequence > 0 || event.Kind == job.EventOutput || event.Kind == job.EventProgress {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.list = append(e.list, event); len(e.list) > maxEvents {
		e.list = slices.Delete(e.list, 0, len(e.list)-maxEvents)
	}
}

// forget reports whether Get was not called for a while. Then it forgets the events, and run ends.
func (e *Events) forget() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.asked) < idle {
		return false
	}
	e.running, e.list = false, nil
	return true
}
