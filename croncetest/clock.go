package croncetest

import (
	"sort"
	"sync"
	"time"
)

// manual is a clock that is set forward, and goes at the pace of the real one in
// between. It never goes back.
type manual struct {
	mu    sync.Mutex
	steps []step // in order; there is one at least
	told  []chan struct{}
}

// step says by how much the clock is off from a real instant on.
type step struct {
	from   time.Time
	offset time.Duration
}

func newManual(start time.Time) *manual {
	now := time.Now().Round(0)
	return &manual{steps: []step{{now, start.Sub(now)}}}
}

// Now is the clock's time.
func (m *manual) Now() time.Time { return m.read(time.Now()) }

// read is what the clock showed at a real instant.
func (m *manual) read(real time.Time) time.Time {
	real = real.Round(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	i := sort.Search(len(m.steps), func(i int) bool { return m.steps[i].from.After(real) })
	return real.Add(m.steps[max(i-1, 0)].offset)
}

// set sets the clock forward to t, unless it is later already, and notifies the listeners.
func (m *manual) set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, last := time.Now().Round(0), m.steps[len(m.steps)-1]
	if offset := t.Sub(now); offset > last.offset {
		m.steps = append(m.steps, step{now, offset})
	}
	for _, c := range m.told {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// listen returns a channel that receives whenever the clock is set.
func (m *manual) listen() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.told = append(m.told, c)
	return c
}
