package embed

import (
	"testing"
	"time"
)

func TestPauseBetweenRestartsGrowsUntilTheServerHasRecovered(t *testing.T) {
	var r restarts
	now := time.Now()
	pause := func() time.Duration {
		t.Helper()
		if !r.due(now) {
			t.Fatal("a restart is not due when the pause is over")
		}
		r.begin(now)
		since := time.Duration(0)
		for ; !r.due(now); now, since = now.Add(time.Second), since+time.Second {
			r.healthy(now) // it writes again, for too short a time to have recovered
		}
		return since
	}
	grows := []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, maxPause, maxPause}
	for i, want := range grows {
		if got := pause(); got != want {
			t.Errorf("pause %d: %v, want %v", i, got, want)
		}
	}
	r.healthy(now)
	for i, want := range grows[:2] {
		if got := pause(); got != want {
			t.Errorf("after the server has recovered, pause %d: %v, want %v", i, got, want)
		}
	}
}
