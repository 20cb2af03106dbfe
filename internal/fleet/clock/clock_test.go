package clock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// simulated returns a clock whose boot reading the test sets with at. The local wall clock is the
// epoch plus the boot reading, and the broker's clock is ahead of it by ahead.
func simulated(ahead time.Duration) (c *Clock, at func(boot time.Duration), broker func(boot time.Duration) time.Time) {
	var now time.Duration
	c = New(0, time.Hour, func(Step) {})
	c.boot = func() time.Duration { return now }
	c.quick = c.boot
	c.wall = func() time.Time { return epoch.Add(now) }
	return c, func(b time.Duration) { now = b }, func(b time.Duration) time.Time { return epoch.Add(ahead + b) }
}

// The two directions of the link are slow by different amounts.
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
		t.Errorf("error %v, now %v: a slow heartbeat made the estimate worse", c.Error(), c.Now())
	}
}

// NTP slews the broker's clock as fast as it may.
func TestDriftIsNoStep(t *testing.T) {
	t.Parallel()
	c, at, _ := simulated(0)
	c.stepped = func(s Step) { t.Errorf("drift was reported as a step: %+v", s) }
	broker := func(boot time.Duration) time.Time { return epoch.Add(boot + boot/2000) } // 500 ppm
	for boot := time.Second; boot < time.Hour; boot += 2 * time.Second {
		c.Observe(boot, boot+200*time.Microsecond, broker(boot+100*time.Microsecond))
		at(boot + time.Second)
		if off := c.Now().Sub(broker(boot + time.Second)).Abs(); off > c.Error() {
			t.Fatalf("off by %v, error bound %v", off, c.Error())
		}
	}
}

func TestAStepOfTheBrokersClockIsReportedAndFollowed(t *testing.T) {
	t.Parallel()
	c, at, broker := simulated(0)
	var stepped []Step
	c.stepped = func(s Step) { stepped = append(stepped, s) }
	for i := range 5 {
		sent := time.Duration(i) * time.Second
		c.Observe(sent, sent+2*time.Millisecond, broker(sent+time.Millisecond))
	}
	c.Observe(10*time.Second, 10*time.Second+2*time.Millisecond, broker(10*time.Second+time.Millisecond).Add(time.Hour))
	at(11 * time.Second)
	if got := c.Now().Sub(broker(11 * time.Second)); got != time.Hour {
		t.Errorf("follows the step by %v, want 1h", got)
	}
	if want := []Step{{By: time.Hour}}; !slices.Equal(stepped, want) {
		t.Errorf("reported %+v, want %+v", stepped, want)
	}
}

// The estimate is relative to the boot clock. So a step of the local wall clock is reported once and
// changes the reported offset, but not Now.
func TestAStepOfTheLocalClockIsReportedAndDoesNotChangeNow(t *testing.T) {
	t.Parallel()
	c, at, broker := simulated(0)
	var stepped []Step
	c.stepped = func(s Step) { stepped = append(stepped, s) }
	by := time.Duration(0)
	c.wall = func() time.Time { return epoch.Add(c.boot() + by) }
	beat := func(boot time.Duration) {
		t.Helper()
		at(boot + 2*time.Millisecond)
		c.Observe(boot, boot+2*time.Millisecond, broker(boot+time.Millisecond))
		if off := c.Now().Sub(broker(c.boot())).Abs(); off > c.Error() {
			t.Errorf("off by %v after a step by %v, error bound %v", off, by, c.Error())
		}
	}
	for boot := time.Second; boot < time.Minute; boot += 2 * time.Second {
		switch boot {
		case 21 * time.Second:
			by = -90 * time.Second
		case 41 * time.Second:
			by = 2 * time.Hour
		}
		beat(boot)
	}
	if want := []Step{{true, -90 * time.Second}, {true, 2*time.Hour + 90*time.Second}}; !slices.Equal(stepped, want) {
		t.Errorf("reported %+v, want %+v", stepped, want)
	}
	if off := c.Offset(); off != -2*time.Hour {
		t.Errorf("offset %v, want -2h", off)
	}
}

// NTP slews the local clock as fast as it may.
func TestASlewOfTheLocalClockIsNoStep(t *testing.T) {
	t.Parallel()
	c, at, broker := simulated(0)
	c.stepped = func(s Step) { t.Errorf("reported %+v", s) }
	c.wall = func() time.Time { return epoch.Add(c.boot() + c.boot()/2000) }
	for boot := time.Second; boot < time.Hour; boot += 2 * time.Second {
		at(boot + time.Millisecond)
		c.Observe(boot, boot+time.Millisecond, broker(boot+time.Millisecond/2))
	}
}

func TestNowIsTheLocalClockBeforeTheFirstSample(t *testing.T) {
	t.Parallel()
	c := New(2*time.Hour, time.Hour, func(Step) {})
	if off := time.Until(c.Now()); off < 2*time.Hour-time.Minute || off > 2*time.Hour+time.Minute {
		t.Errorf("reads %v ahead, want the shift of 2h", off)
	}
	select {
	case <-c.Known():
		t.Error("the clock is known before the first sample")
	default:
	}
	c.Observe(0, time.Millisecond, time.Now())
	<-c.Known()
}

func TestOffsetIsRelativeToTheShiftedLocalClock(t *testing.T) {
	t.Parallel()
	c := New(2*time.Hour, time.Hour, func(Step) {})
	sent := c.boot()
	c.Observe(sent, c.boot(), time.Now())
	if off := c.Offset(); (off + 2*time.Hour).Abs() > time.Second {
		t.Errorf("offset %v, want -2h", off)
	}
	err := c.Plausible()
	if err == nil {
		t.Fatal("an offset of two hours is plausible, want one hour at most")
	}
	for _, says := range []string{"this node's clock is 2h0m0s ahead of the broker's", "at most 1h0m0s"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
}

func TestAClockIsPlausibleUpToItsMaximum(t *testing.T) {
	t.Parallel()
	for ahead, plausible := range map[time.Duration]bool{
		0: true, 59 * time.Minute: true, -59 * time.Minute: true, 61 * time.Minute: false, -61 * time.Minute: false,
	} {
		c, _, broker := simulated(ahead)
		c.Observe(0, 2*time.Millisecond, broker(time.Millisecond))
		if err := c.Plausible(); (err == nil) != plausible {
			t.Errorf("a broker ahead by %v: %v", ahead, err)
		}
	}
}

func TestAManualClockIgnoresHeartbeats(t *testing.T) {
	t.Parallel()
	now := time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)
	set := make(chan struct{})
	c := NewManual(func() time.Time { return now }, set)
	c.Observe(0, time.Second, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	select {
	case <-c.Known():
	default:
		t.Error("a manual clock is not known")
	}
	if got := c.Now(); !got.Equal(now) || c.Offset() != 0 || c.Error() != 0 || c.Plausible() != nil || c.Stepped() != (<-chan struct{})(set) {
		t.Errorf("now %v, offset %v, error %v, plausible: %v", got, c.Offset(), c.Error(), c.Plausible())
	}
}

// The broker, or the link, delays the first heartbeat on its way there, or back.
func TestAClockIsNotKnownAfterOneSlowHeartbeat(t *testing.T) {
	t.Parallel()
	for _, held := range []time.Duration{101 * time.Millisecond, 4 * time.Second, 8 * time.Second} {
		for name, stamped := range map[string]time.Duration{"there": held, "back": 0} {
			c, at, broker := simulated(0)
			c.Observe(0, held, broker(stamped))
			at(held)
			if isKnown(c) {
				t.Errorf("held for %v on its way %s: the clock is known after one answer", held, name)
			}
			if ahead := c.Now().Add(-c.Error()).Sub(broker(held)); ahead > 0 {
				t.Errorf("held for %v on its way %s: Now minus Error is %v ahead of the broker's clock", held, name, ahead)
			}
			next := held + 2*time.Second
			c.Observe(next, next+time.Millisecond, broker(next))
			at(next + time.Millisecond)
			if !isKnown(c) || c.Error() > time.Millisecond {
				t.Errorf("held for %v on its way %s: after a quick answer known is %v, the error %v", held, name, isKnown(c), c.Error())
			}
		}
	}
}

// Each heartbeat is slow. The node waits for a few of them, or for some seconds, and then uses the
// wide estimate.
func TestAClockOfASlowLinkIsKnownAfterAFewHeartbeats(t *testing.T) {
	t.Parallel()
	for trip, answers := range map[time.Duration]int{200 * time.Millisecond: maxFirst, 6 * time.Second: 3} {
		c, _, broker := simulated(0)
		n := 0
		for boot := time.Duration(0); !isKnown(c); boot += trip {
			c.Observe(boot, boot+trip, broker(boot+trip/2))
			if n++; n > 2*maxFirst {
				t.Fatalf("not known after %d answers of %v", n, trip)
			}
		}
		if n != answers {
			t.Errorf("known after %d answers of %v, want %d", n, trip, answers)
		}
	}
}

func isKnown(c *Clock) bool {
	select {
	case <-c.Known():
		return true
	default:
		return false
	}
}
