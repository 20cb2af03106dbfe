package alert

import (
	"testing"
	"time"
)

func TestAFailingTargetIsTriedByOneDeliveryAtATimeAndLaterEachTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s := newTargets(func() time.Time { return now })
	acquire := func(name string, want time.Duration, ok bool) {
		t.Helper()
		if wait, got := s.acquire(name); got != ok || wait != want {
			t.Errorf("%s: wait %v, %v; want %v, %v", name, wait, got, want, ok)
		}
	}
	for range maxPerTarget {
		acquire("a", 0, true)
	}
	acquire("a", busyDelay, false)
	acquire("b", 0, true) // another target has its own bound
	for range maxPerTarget {
		s.release("a", true) // together they count as one failure
	}
	acquire("a", 2*time.Second, false)
	last := 2 * time.Second
	for _, wait := range []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, maxBackoff, maxBackoff} {
		now = now.Add(maxBackoff)
		acquire("a", 0, true)
		acquire("a", last, false) // another delivery probes it
		s.release("a", true)
		acquire("a", wait, false)
		last = wait
	}
	now = now.Add(maxBackoff)
	acquire("a", 0, true)
	s.release("a", false)
	for range maxPerTarget {
		acquire("a", 0, true) // it works again
	}
}

func TestIdleTargetsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newTargets(time.Now)
	for i := range 3 * maxTargets {
		name := time.Duration(i).String()
		if _, ok := s.acquire(name); !ok {
			t.Fatal("a new target has to wait")
		}
		s.release(name, false)
	}
	if len(s.all) > maxTargets {
		t.Errorf("%d targets are remembered, want at most %d", len(s.all), maxTargets)
	}
}
