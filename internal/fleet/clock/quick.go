package clock

import (
	"sync/atomic"
	"time"
)

// quick reads the boot clock by the two that cost no system call: Go's monotonic one,
// which stands still over a suspend, and the wall clock, which tells that there was one.
// A suspend in which the wall clock is set back by as much, before anybody looks, goes
// unnoticed until the wall clock moves again: then what is read is late, never early.
// It is safe for concurrent use.
type quick struct {
	boot func() time.Duration
	read func() (mono, wall time.Duration)
	last atomic.Pointer[anchor]
}

// anchor is one reading of all three clocks; the boot clock's may be a little older, so
// that what is computed from it is never ahead.
type anchor struct{ boot, mono, wall time.Duration }

// moved is by how much the wall clock may move against the monotonic one before all are
// read anew.
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

// anchor reads all clocks, again if it was kept from doing so at once.
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
