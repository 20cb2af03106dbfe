package clock

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// simulated is a clock whose boot reading the test moves; the broker's clock is
// the epoch plus the boot reading plus ahead.
func simulated(ahead time.Duration) (c *Clock, at func(boot time.Duration), broker func(boot time.Duration) time.Time) {
	var now time.Duration
	c = New(0, time.Hour, nil)
	c.boot = func() time.Duration { return now }
	return c, func(b time.Duration) { now = b }, func(b time.Duration) time.Time { return epoch.Add(ahead + b) }
}

// The estimate is never farther from the broker's clock than it says, however
// slow and lopsided the link.
func TestEstimateIsWithinItsErrorBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ahead := time.Duration(rapid.Int64Range(-int64(3*time.Hour), int64(3*time.Hour)).Draw(t, "ahead"))
		c, at, broker := simulated(ahead)
		boot := time.Hour
		for range rapid.IntRange(1, 40).Draw(t, "heartbeats") {
			there := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "there"))
			back := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "back"))
			c.Observe(boot, boot+there+back, broker(boot+there))
			boot += there + back + time.Second
			at(boot)
			if off := c.Now().Sub(broker(boot)).Abs(); off > c.Error() {
				t.Fatalf("off by %v, error bound %v", off, c.Error())
			}
		}
	})
}

func TestTheTightestSampleCounts(t *testing.T) {
	t.Parallel()
	c, at, broker := simulated(0)
	c.Observe(0, 2*time.Millisecond, broker(time.Millisecond))
	c.Observe(time.Second, 3*time.Second, broker(time.Second))
	at(3 * time.Second)
	if c.Error() > 5*time.Millisecond || !c.Now().Equal(broker(3*time.Second)) {
		t.Errorf("error %v, now %v: the slow heartbeat spoilt the estimate", c.Error(), c.Now())
	}
}

// While NTP slews one of the clocks by its utmost, nothing is said to be stepped,
// and the estimate stays within its bound.
func TestDriftIsNoStep(t *testing.T) {
	t.Parallel()
	c, at, _ := simulated(0)
	c.stepped = func(by time.Duration) { t.Errorf("drift was taken for a step by %v", by) }
	broker := func(boot time.Duration) time.Time { return epoch.Add(boot + boot/2000) } // 500 ppm
	for boot := time.Second; boot < time.Hour; boot += 2 * time.Second {
		c.Observe(boot, boot+200*time.Microsecond, broker(boot+100*time.Microsecond))
		at(boot + time.Second)
		if off := c.Now().Sub(broker(boot + time.Second)).Abs(); off > c.Error() {
			t.Fatalf("off by %v, error bound %v", off, c.Error())
		}
	}
}

func TestASteppedBrokerIsNoticedAndFollowed(t *testing.T) {
	t.Parallel()
	c, at, broker := simulated(0)
	var stepped []time.Duration
	c.stepped = func(by time.Duration) { stepped = append(stepped, by) }
	for i := range 5 {
		sent := time.Duration(i) * time.Second
		c.Observe(sent, sent+2*time.Millisecond, broker(sent+time.Millisecond))
	}
	c.Observe(10*time.Second, 10*time.Second+2*time.Millisecond, broker(10*time.Second+time.Millisecond).Add(time.Hour))
	at(11 * time.Second)
	if got := c.Now().Sub(broker(11 * time.Second)); got != time.Hour {
		t.Errorf("follows the step by %v, want 1h", got)
	}
	if len(stepped) != 1 || stepped[0] != time.Hour {
		t.Errorf("told of %v, want one step of 1h", stepped)
	}
}

func TestBeforeAnythingIsHeardTheLocalClockIsRead(t *testing.T) {
	t.Parallel()
	c := New(2*time.Hour, time.Hour, nil)
	if off := time.Until(c.Now()); off < 2*time.Hour-time.Minute || off > 2*time.Hour+time.Minute {
		t.Errorf("reads %v ahead, want the shift of 2h", off)
	}
	select {
	case <-c.Known():
		t.Error("known before anything was heard")
	default:
	}
	c.Observe(0, time.Millisecond, time.Now())
	<-c.Known()
}

// The offset is against the node's own wall clock, shift included: it is what a
// person has to mend.
func TestOffsetIsAgainstTheShiftedLocalClock(t *testing.T) {
	t.Parallel()
	c := New(2*time.Hour, time.Hour, nil)
	sent := c.boot()
	c.Observe(sent, c.boot(), time.Now())
	if off := c.Offset(); (off + 2*time.Hour).Abs() > time.Second {
		t.Errorf("offset %v, want -2h", off)
	}
	if c.Plausible() {
		t.Error("two hours are believed where one is the most")
	}
}
