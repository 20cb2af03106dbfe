package alert

import (
	"sync"
	"time"
)

const (
	// maxPerTarget bounds the running deliveries to one target, and maxDeliveries those to all
	// targets.
	maxPerTarget  = 16
	maxDeliveries = 256

	// busyDelay is the delay of an alert whose target, or this node, has no capacity.
	busyDelay = time.Second

	// maxBackoff is the longest time for which a failing target is left alone.
	maxBackoff = time.Minute

	// maxTargets is the number of targets above which idle ones are dropped.
	maxTargets = 1000
)

// targets limits the running deliveries to each target and backs off from targets that fail,
// so that no target delays the alerts of another.
type targets struct {
	now func() time.Time

	mu      sync.Mutex
	all     map[string]*target
	running int
}

type target struct {
	running  int
	failures int       // consecutive
	until    time.Time // no delivery before
}

func newTargets(now func() time.Time) *targets {
	return &targets{now: now, all: map[string]*target{}}
}

// acquire begins a delivery, which release ends. If ok is false, wait is the delay before
// the next try.
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
	case s.running == maxDeliveries || t.running == maxPerTarget:
		return busyDelay, false
	case t.failures > 0 && t.running > 0: // one delivery probes a failing target
		return max(busyDelay, backoff(t.failures)), false
	}
	t.running++
	s.running++
	return 0, true
}

// release ends a delivery. If several that ran at the same time fail, they count as one
// failure.
func (s *targets) release(name string, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.all[name], s.now()
	t.running--
	s.running--
	switch {
	case !failed:
		t.failures, t.until = 0, time.Time{}
	case !now.Before(t.until):
		t.failures++
		t.until = now.Add(backoff(t.failures))
	}
}

// backoff returns 2 s, doubled with each failure.
func backoff(failures int) time.Duration {
	return min(time.Second<<min(failures, 20), maxBackoff)
}

// forget drops the targets that are idle and not in backoff, if there are too many targets. s.mu is
// held.
func (s *targets) forget() {
	if len(s.all) < maxTargets {
		return
	}
	for name, t := range s.all {
		if t.running == 0 && !s.now().Before(t.until) {
			delete(s.all, name)
		}
	}
}
