package clock

import (
	"sync/atomic"
	"time"
)

// quick reads the boot clock without a system call. It uses Go's monotonic clock, which
// stands still during a suspend, and the wall clock, which shows that there was one. If the
// wall clock is set back during a suspend by the length of the suspend, quick misses the
// suspend until the wall clock is set again. Its reading is then late, never early. It is
// safe for concurrent use.
type quick struct {
	boot func() time.Duration
	read func() (mono, wall time.Duration)
	last atomic.Pointer[anchor]
}

// anchor is one reading of all three clocks. The reading of the boot clock may be a little
// older than the others, so a time computed from it is never ahead.
type anchor struct{ boot, mono, wall time.Duration }

// If the wall clock has changed by more than moved relative to the monotonic clock, quick reads all
// three clocks again.
const moved = time.Millisecond

func newQuick(boot func() time.Duration) *quick {
	origin := time.Now()
	return &quick{boot: boot, read: func() (mono, wall time.Duration) {
		now := time.Now()
		return now.Sub(origin), time.Duration(now.UnixNano())
	}}
}

func (q *quick) now() time.Duration {
	mono, wall := q.read()
	a := q.last.Load()
	if a == nil || ((wall-mono)-(a.wall-a.mono)).Abs() > moved {
		a = q.anchor()
		mono = max(mono, a.mono)
		q.last.Store(a)
	}
	return a.boot + mono - a.mono
}

// anchor reads all clocks. It reads three times and returns the reading that took the least
// time.
func (q *quick) anchor() *anchor {
	var best *anchor
	var least time.Duration
	for range 3 {
		before, _ := q.read()
		boot := q.boot()
		after, wall := q.read()
		if took := after - before; best == nil || took < least {
			best, least = &anchor{boot, after, wall}, took
		}
	}
	return best
}
