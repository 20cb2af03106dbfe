// Package clock estimates the broker's clock.
//
// The fleet has one clock, the broker's. A slot is due when the broker's clock says so,
// however wrong the clock of a node is. Each heartbeat gives a bound: the broker stamped it
// after it was sent and before it was acknowledged, so the broker's clock minus the node's
// lies between stamp-acknowledged and stamp-sent. The estimate is the midpoint, so its error
// is at most half the round trip,
//
//	|estimate - broker's clock| <= (acknowledged - sent) / 2 + 500 ppm of the time since,
//
// however the delay is divided between the two directions. A node behind a link of 200 ms is
// wrong by at most 100 ms, and knows that bound (Clock.Error).
//
// The broker's clock has certainly reached Now minus Error. Whatever must not come too early uses
// that time: the publication of a slot, a start, and an end by age. So a wide estimate makes slots
// late, never early.
//
// Properties:
//   - If the first estimate is wide, the node waits for the next heartbeats. Otherwise one
//     heartbeat that a broker held for seconds during a failover would delay the first slots of
//     the node by as much. If the estimate is still wide after a few heartbeats, the link is slow,
//     and the node begins.
//   - The estimate is relative to the boot clock, not to the wall clock. An operator or NTP
//     can step the wall clock without any effect between two heartbeats, and a suspend is
//     counted.
//   - The estimate is the tightest of the last samples, not their mean: the bounds are hard,
//     and a slow answer only has wide ones. If a sample contradicts the tightest one, the
//     broker's clock was stepped, and only the new sample counts.
//   - A step of the local wall clock is reported, because an operator should know, and
//     changes nothing. It shows as a change of the wall clock relative to the boot clock.
package clock

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/boot"
)

const (
	// keep is the number of samples kept: the last half minute, at two seconds between
	// heartbeats.
	keep = 16

	// drift is a divisor: a clock drifts by at most a 2000th of the time that passes, because NTP
	// slews by at most 500 ppm.
	drift = 2000

	// jitter is the tolerance for two samples beyond drift.
	jitter = time.Millisecond

	// If the error of the first estimate is at most narrow, as with a round trip of 100 ms, the
	// estimate may be used at once. A wider one may be used after maxFirst samples, or firstFor
	// after the first sample.
	narrow   = 50 * time.Millisecond
	maxFirst = 4
	firstFor = 10 * time.Second

	// minStep is the smallest step of the local clock that is reported.
	minStep = 100 * time.Millisecond
)

// Step is a step of a clock while this process ran.
type Step struct {
	// Local is true for the wall clock of this node, and false for the broker's clock.
	Local bool
	By    time.Duration
}

// Clock estimates the broker's clock. It is safe for concurrent use.
type Clock struct {
	shift     time.Duration
	maxOffset time.Duration
	boot      func() time.Duration
	quick     func() time.Duration // boot without a system call
	wall      func() time.Time
	stepped   func(Step)

	// manual, if not nil, replaces the estimate. set delivers a value when the time of manual was
	// changed.
	manual func() time.Time
	set    <-chan struct{}

	best atomic.Pointer[sample] // nil before the first sample

	mu      sync.Mutex
	samples []sample
	local   time.Duration // wall minus boot, at the last sample
	first   int           // number of samples until known was closed; the first was taken at began
	began   time.Duration // on the boot clock
	known   chan struct{}
}

// sample is a bound of the broker's clock minus the boot clock.
type sample struct {
	offset, err time.Duration
	at          time.Duration // on the boot clock
}

// errAt returns the error at a later reading of the boot clock. It grows with the drift.
func (s sample) errAt(boot time.Duration) time.Duration {
	return s.err + max(boot-s.at, 0)/drift
}

// New returns a clock that reads the local clock until the first sample. shift is added to
// every reading of the local wall clock, so that tests can make it wrong. maxOffset is the
// largest difference of the two clocks that is plausible (see Plausible). stepped is called for
// each step of a clock.
func New(shift, maxOffset time.Duration, stepped func(Step)) *Clock {
	return &Clock{shift: shift, maxOffset: maxOffset, boot: boot.Now, quick: newQuick(boot.Now).now, wall: time.Now, stepped: stepped, known: make(chan struct{})}
}

// NewManual returns a clock that reads now and nothing else, for tests. set delivers a value
// when now was changed.
func NewManual(now func() time.Time, set <-chan struct{}) *Clock {
	c := &Clock{manual: now, set: set, known: make(chan struct{})}
	close(c.known)
	return c
}

// Stepped returns the set channel of a manual clock, and nil for any other clock.
func (c *Clock) Stepped() <-chan struct{} { return c.set }

// Local returns the wall clock of the node, uncorrected.
func (c *Clock) Local() time.Time {
	if c.manual != nil {
		return c.manual()
	}
	return c.wall().Add(c.shift).Round(0)
}

// Now returns the estimate of the broker's clock.
func (c *Clock) Now() time.Time {
	best := c.best.Load()
	if best == nil {
		return c.Local()
	}
	return time.Unix(0, int64(c.quick()+best.offset))
}

// Known is closed when the estimate may be used: it is narrow, or the link is too slow for a
// narrow one.
func (c *Clock) Known() <-chan struct{} { return c.known }

// Error bounds the difference between Now and the broker's clock: half the round trip of the
// tightest heartbeat, and half a millisecond for each second since. It is zero before the
// first sample.
func (c *Clock) Error() time.Duration {
	best := c.best.Load()
	if best == nil {
		return 0
	}
	return best.errAt(c.quick()) // called for each slot, so it must be cheap
}

// Offset returns the broker's clock minus the wall clock of the node, and zero before the
// first sample.
func (c *Clock) Offset() time.Duration {
	if c.best.Load() == nil {
		return 0
	}
	return c.Now().Sub(c.Local())
}

// Plausible returns an error if the broker's clock and the clock of the node are further
// apart than the maximum. One of the two is then badly wrong, and what a node does by such a
// clock cannot be undone: a watermark of the year 2036, for example.
func (c *Clock) Plausible() error {
	offset := c.Offset()
	if offset.Abs() <= c.maxOffset {
		return nil
	}
	where := "behind"
	if offset < 0 {
		where = "ahead of"
	}
	return fmt.Errorf("this node's clock is %v %s the broker's; at most %v is allowed",
		offset.Abs().Round(100*time.Millisecond), where, c.maxOffset)
}

// Observe adds the sample of a message that was sent and acknowledged at these readings of
// the boot clock, and that the broker stamped with at.
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
	if by := c.wallStep(); by.Abs() >= minStep {
		c.stepped(Step{Local: true, By: by})
	}
}

// wallStep returns by how much the local wall clock was stepped since the last call, or drifted.
func (c *Clock) wallStep() (steppedBy time.Duration) {
	before, wall, after := c.boot(), c.wall(), c.boot()
	if after-before > minStep/2 {
		return 0 // suspended between the readings, which cannot be compared
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

// add adds a sample. If the sample shows that the broker's clock was stepped, add returns by how much.
func (c *Clock) add(s sample) (steppedBy time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := c.best.Load()
	if best != nil {
		// Two bounds that do not overlap cannot both hold. Both clocks may drift.
		if (s.offset - best.offset).Abs() > s.err+best.errAt(s.at)+(s.at-best.at)/drift+jitter {
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
	c.updateKnown(s.at)
	return steppedBy
}

// updateKnown closes known if the estimate may be used from now on.
func (c *Clock) updateKnown(now time.Duration) {
	select {
	case <-c.known:
		return
	default:
	}
	if c.first++; c.first == 1 {
		c.began = now
	}
	if c.best.Load().err <= narrow || c.first == maxFirst || now-c.began >= firstFor {
		close(c.known)
	}
}
