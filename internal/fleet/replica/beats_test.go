package replica

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/fleet/clock"
)

// The clock is then known well when slots are due.
func TestHeartbeatsComeShortlyBeforeAFullSecond(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lease := time.Duration(rapid.IntRange(10, 60).Draw(t, "lease")) * time.Second
		name := rapid.StringMatching(`[a-z]{1,9}-[0-9]{1,5}`).Draw(t, "name")
		now := time.Unix(1763700000, rapid.Int64Range(0, int64(time.Hour)).Draw(t, "now"))
		wait := pauseBeforeBeat(now, lease, name)
		if wait < 20*time.Millisecond || wait > lease/10 {
			t.Fatalf("the next heartbeat comes after %v, with a lease of %v", wait, lease)
		}
		next := now.Add(wait)
		if left := next.Truncate(time.Second).Add(time.Second).Sub(next); left < 50*time.Millisecond || left > 270*time.Millisecond {
			t.Errorf("the next heartbeat comes %v before a full second", left)
		}
		answered := time.Duration(rapid.IntRange(-5, 5).Draw(t, "answered")) * time.Millisecond // by the clock as it is known then
		if again := pauseBeforeBeat(next.Add(answered), lease, name); again < lease/10-time.Second-30*time.Millisecond {
			t.Errorf("the heartbeat after the next comes %v later, with a lease of %v", again, lease)
		}
	})
}

func TestHeartbeatsOfAShortLeaseComeEveryTenthOfIt(t *testing.T) {
	t.Parallel()
	if wait := pauseBeforeBeat(time.Now(), 5*time.Second, "a"); wait != 500*time.Millisecond {
		t.Errorf("the next heartbeat comes after %v", wait)
	}
}

// By the first heartbeat, which the broker held for a second, the clock is not known well enough to act.
func TestHeartbeatsOfALongLeaseComeOftenUntilTheClockIsKnown(t *testing.T) {
	t.Parallel()
	const lease = time.Hour
	c := clock.New(0, time.Hour, func(clock.Step) {})
	c.Observe(boot.Now(), boot.Now()+time.Second, time.Now())
	if wait := pauseBeforeAnyBeat(c, lease, "a"); core.IsClosed(c.Known()) || wait > 2*time.Second {
		t.Errorf("the second heartbeat comes after %v; the clock is known: %v", wait, core.IsClosed(c.Known()))
	}
}

// The stamp of a heartbeat may come before its answer, and again when a watch begins anew.
func TestAHeartbeatIsMeasuredOnceAndByItsOwnTimes(t *testing.T) {
	t.Parallel()
	steps := 0
	b := newBeats(clock.New(0, time.Hour, func(clock.Step) { steps++ }), func() bool { return true }, nil)
	sent, stamp := boot.Now(), time.Now()
	beat := func(name string, revision uint64, at time.Duration, stampFirst bool) (stamped exchange.NodeEvent) {
		stamped = exchange.NodeEvent{Name: name, Revision: revision, Time: stamp.Add(at)}
		if stampFirst {
			b.stamped(stamped)
		}
		b.acknowledged(revision, sent+at, sent+at+time.Millisecond)
		if !stampFirst {
			b.stamped(stamped)
		}
		return stamped
	}
	b.switchTo("a")
	beat("a", 7, 0, false)
	b.stamped(beat("a", 8, 2*time.Second, true))
	if steps > 0 {
		t.Error("the broker's clock counts as set: a stamp was taken with the times of another heartbeat")
	}
	// The bucket was created again, so the revisions start again.
	b.switchTo("b")
	stamp = stamp.Add(time.Minute)
	if beat("b", 1, 4*time.Second, false); steps != 1 {
		t.Errorf("%d steps: the heartbeat of the next incarnation does not count", steps)
	}
}
