package alert

import (
	"sync"
	"time"
)

const (
	// atTarget is how many deliveries to one target are under way at a time, and
	// atOnce how many to all.
	atTarget = 16
	atOnce   = 256

	// busy is the pause before an alert is tried whose target, or this node, has as
	// much to do as it may.
	busy = time.Second

	// maxBackoff is how long at most a target that fails is left alone. Then one
	// delivery tries it.
	maxBackoff = time.Minute

	// maxTargets is how many targets are remembered before idle ones are forgotten.
	maxTargets = 1000
)

// targets bounds what is under way to each target, and backs off from those that fail,
// so that none delays the alerts of another.
type targets struct {
	now func() time.Time

	mu    sync.Mutex
	all   map[string]*target
	under int // way, to all
}

type target struct {
	under    int // way
	failures int // one after the other
	until    time.Time
}

func newTargets(now func() time.Time) *targets {
	return &targets{now: now, all: map[string]*target{}}
}

// acquire begins a delivery, which release ends, or says how long to wait before the
// next try.
func (s *targets) acquire(name string) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[name]
	if t == nil {
		s.forget()
		t = &target{}
		s.all[name] = t
	}
	left := t.until.Sub(s.now())
	switch {
	case left > 0:
		return left, false
	case s.under == atOnce || t.under == atTarget:
		return busy, false
	case t.failures > 0 && t.under > 0: // one tries it
		return max(busy, backoff(t.failures)), false
	}
	t.under++
	s.under++
	return 0, true
}

// release ends a delivery. Of several that were under way together, one failure counts.
func (s *targets) release(name string, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.all[name], s.now()
	t.under--
	s.under--
	switch {
	case !failed:
		t.failures, t.until = 0, time.Time{}
	case !now.Before(t.until):
		t.failures++
		t.until = now.Add(backoff(t.failures))
	}
}

// backoff is 2 s, doubled with each failure.
func backoff(failures int) time.Duration {
	return min(time.Second<<min(failures, 20), maxBackoff)
}

// forget drops targets that need no memory any more; s.mu is held.
func (s *targets) forget() {
	if len(s.all) < maxTargets {
		return
	}
	for name, t := range s.all {
		if t.under == 0 && !s.now().Before(t.until) {
			delete(s.all, name)
		}
	}
}
