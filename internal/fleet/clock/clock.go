// Package clock knows the broker's time.
//
// The fleet has one clock, the broker's: a slot is due when the broker's clock
// says so, however wrong a node's own is. Each heartbeat gives a bound: the
// broker stamped it after it was sent and before it was acknowledged, so the
// broker's clock minus ours lies between stamp-acknowledged and stamp-sent. The
// midpoint is taken, so that the error is at most half the round trip,
//
//	|estimate - broker's clock| <= (acknowledged - sent) / 2 + 500 ppm of the time since,
//
// however slow the link is and however the delay is divided between there and
// back: the bound is reached when all of it is in one direction. A node behind a
// link of 200 ms is wrong by at most 100 ms, and knows it (Clock.Error).
//
// The broker's clock has certainly reached Now less Error (Clock.Certain). Whatever
// must not come too early goes by that: the publication of a slot, a start, and an
// end by age. A wide estimate thus costs lateness, and never makes a slot early.
//
// Decisions:
//   - A node asks again before it acts on a wide estimate. One heartbeat that a
//     failing-over broker held for seconds would otherwise delay the node's first
//     slots by as much. Heartbeats are the question, so that it costs no request of
//     its own. After a few answers the link itself is slow, and the node begins.
//   - The estimate is held against the boot clock, not the wall clock, so that a
//     wall clock stepped by an operator or by NTP changes nothing between two
//     heartbeats, and a suspend is counted. Rejected: correcting the wall clock,
//     which fires early or late until the next sample.
//   - The tightest of the last samples is used, not their mean: the bounds are
//     hard, and a slow answer only has wide ones. A sample that contradicts it
//     means that the broker's clock was stepped: then only the new one counts.
//   - A step of the local wall clock is told, since a person has to know, but
//     changes nothing. It is what the wall clock and the boot clock disagree on.
package clock

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

const (
	// keep is how many samples are looked at: at two seconds between heartbeats,
	// the last half minute.
	keep = 16

	// drift bounds how fast a clock may run wrong: NTP slews by at most 500 ppm,
	// a 2000th part of the time passed.
	drift = 2000

	// jitter allows for what is not drift between two samples.
	jitter = time.Millisecond

	// narrow is the error of an estimate that the node does not ask again about: that
	// of a round trip of 100 ms. It asks maxAsked times at most, and for at most askFor
	// after the first answer.
	narrow   = 50 * time.Millisecond
	maxAsked = 4
	askFor   = 10 * time.Second

	// worthTelling is the least step of the local clock that is told: nothing
	// depends on it.
	worthTelling = 100 * time.Millisecond
)

// Step is a clock that was set while this process ran.
type Step struct {
	// Local says that it was this node's wall clock; else it was the broker's.
	Local bool
	By    time.Duration
}

// Clock estimates the broker's clock. It is safe for concurrent use.
type Clock struct {
	shift   time.Duration
	most    time.Duration
	boot    func() time.Duration
	quick   func() time.Duration
	wall    func() time.Time
	stepped func(Step)

	// manual, if set, is the clock, and set tells that it was set.
	manual func() time.Time
	set    <-chan struct{}

	best atomic.Pointer[sample] // nil: nothing has been heard

	mu      sync.Mutex
	samples []sample
	local   time.Duration // wall minus boot, at the last sample
	asked   int           // samples since the first one, which was taken at began
	began   time.Duration // on the boot clock
	known   chan struct{}
}

// sample bounds the broker's clock minus the boot clock.
type sample struct {
	offset, err time.Duration
	at          time.Duration // on the boot clock
}

// errAt is the bound at a later reading of the boot clock: it grows with the
// drift.
func (s sample) errAt(boot time.Duration) time.Duration {
	return s.err + max(boot-s.at, 0)/drift
}

// New returns a clock that reads the local one until it has heard from the
// broker. shift is added to every reading of the local wall clock (for tests:
// the correction has to discover it). most is how far the two may be apart before
// neither is believed (see Plausible). stepped, if not nil, is told of each clock
// that was found to have been stepped.
func New(shift, most time.Duration, stepped func(Step)) *Clock {
	if stepped == nil {
		stepped = func(Step) {}
	}
	return &Clock{shift: shift, most: most, boot: boot.Now, quick: newQuick(boot.Now).now, wall: time.Now, stepped: stepped, known: make(chan struct{})}
}

// NewManual returns a clock that goes by now and by nothing else: for tests, which
// set it. set tells, to one who listens, that it was.
func NewManual(now func() time.Time, set <-chan struct{}) *Clock {
	c := &Clock{manual: now, set: set, known: make(chan struct{})}
	close(c.known)
	return c
}

// Stepped tells that a manual clock was set. Of any other it is nil.
func (c *Clock) Stepped() <-chan struct{} { return c.set }

// Local is the node's own wall clock, uncorrected.
func (c *Clock) Local() time.Time {
	if c.manual != nil {
		return c.manual()
	}
	return c.wall().Add(c.shift).Round(0)
}

// Now is the broker's clock, as well as it is known.
func (c *Clock) Now() time.Time {
	best := c.best.Load()
	if best == nil {
		return c.Local()
	}
	return time.Unix(0, int64(c.quick()+best.offset))
}

// Known is closed when the estimate may be acted on: it is narrow, or the link is
// too slow for a narrow one.
func (c *Clock) Known() <-chan struct{} { return c.known }

// Certain is the latest instant that the broker's clock has certainly reached.
func (c *Clock) Certain() time.Time { return c.Now().Add(-c.Error()) }

// Error bounds how far Now is from the broker's clock: half the round trip of
// the tightest heartbeat, and half a millisecond for each second since. Zero
// while nothing has been heard.
func (c *Clock) Error() time.Duration {
	best := c.best.Load()
	if best == nil {
		return 0
	}
	return best.errAt(c.quick()) // asked for each slot
}

// Offset is the broker's clock minus the node's own wall clock, zero while
// nothing has been heard.
func (c *Clock) Offset() time.Duration {
	if c.best.Load() == nil {
		return 0
	}
	return c.Now().Sub(c.Local())
}

// Plausible returns an error, which names the difference and the most that is
// allowed, while the broker's clock and the node's own are so far apart that one
// of the two must be badly wrong. What would be done by such a clock could not be
// taken back: a watermark of the year 2036, say.
func (c *Clock) Plausible() error {
	offset := c.Offset()
	if offset.Abs() <= c.most {
		return nil
	}
	where := "behind"
	if offset < 0 {
		where = "ahead of"
	}
	return fmt.Errorf("this node's clock is %v %s the broker's; at most %v is believed",
		offset.Abs().Round(100*time.Millisecond), where, c.most)
}

// Observe takes in a message that was sent and acknowledged at these readings of
// the boot clock and that the broker stamped with at.
func (c *Clock) Observe(sent, acked time.Duration, at time.Time) {
	if acked < sent || c.manual != nil {
		return
	}
	s := sample{
		offset: time.Duration(at.UnixNano()) - (sent+acked)/2,
		err:    (acked - sent + 1) / 2,
		at:     acked,
	}
	if by := c.add(s); by != 0 {
		c.stepped(Step{By: by})
	}
	if by := c.lookAtWall(); by.Abs() >= worthTelling {
		c.stepped(Step{Local: true, By: by})
	}
}

// lookAtWall returns by how much the local wall clock was set since it was last
// looked at.
func (c *Clock) lookAtWall() (steppedBy time.Duration) {
	before, wall, after := c.boot(), c.wall(), c.boot()
	if after-before > worthTelling/2 {
		return 0 // asleep between the readings: they say nothing
	}
	local := time.Duration(wall.UnixNano()) - after
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local != 0 {
		steppedBy = local - c.local
	}
	c.local = local
	return steppedBy
}

func (c *Clock) add(s sample) (steppedBy time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := c.best.Load()
	if best != nil {
		// Two bounds that do not meet cannot both hold.
		apart := s.err + best.errAt(s.at) + (s.at-best.at)/drift + jitter // both may drift
		if (s.offset - best.offset).Abs() > apart {
			steppedBy = s.offset - best.offset
			c.samples = nil
		}
	}
	c.samples = append(c.samples, s)
	if len(c.samples) > keep {
		c.samples = c.samples[1:]
	}
	next := c.samples[0]
	for _, other := range c.samples[1:] {
		if other.errAt(s.at) <= next.errAt(s.at) {
			next = other
		}
	}
	c.best.Store(&next)
	c.acquaint(s.at)
	return steppedBy
}

// acquaint closes known when there is no point in asking again.
func (c *Clock) acquaint(now time.Duration) {
	select {
	case <-c.known:
		return
	default:
	}
	if c.asked++; c.asked == 1 {
		c.began = now
	}
	if c.best.Load().err <= narrow || c.asked == maxAsked || now-c.began >= askFor {
		close(c.known)
	}
}
