package croncetest

import (
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

// manual is a clock that Advance sets forward. Between two settings it runs at the pace of the real
// clock. It never goes back.
type manual struct {
	mu        sync.Mutex
	steps     []step // in order; at least one
	listeners []chan struct{}
}

// step is the offset of the clock to the real one, from a real instant on.
type step struct {
	from   time.Time
	offset time.Duration
}

func newManual(start time.Time) *manual {
	now := time.Now().Round(0)
	return &manual{steps: []step{{now, start.Sub(now)}}}
}

// Now returns the clock's time.
func (m *manual) Now() time.Time { return m.read(time.Now()) }

// read returns what the clock showed at a real instant.
func (m *manual) read(real time.Time) time.Time {
	real = real.Round(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range slices.Backward(m.steps) {
		if !s.from.After(real) {
			return real.Add(s.offset)
		}
	}
	return real.Add(m.steps[0].offset)
}

// set sets the clock forward to t, unless it is already later, and notifies the listeners.
func (m *manual) set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, last := time.Now().Round(0), m.steps[len(m.steps)-1]
	if offset := t.Sub(now); offset > last.offset {
		m.steps = append(m.steps, step{now, offset})
	}
	for _, c := range m.listeners {
		core.TrySend(c, struct{}{})
	}
}

// listen returns a channel that receives whenever the clock is set.
func (m *manual) listen() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.listeners = append(m.listeners, c)
	return c
}
