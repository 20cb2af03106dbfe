package boot

import (
	"time"

	"golang.org/x/sys/unix"
)

// Nap sleeps for d, or less. Go's timers are up to a millisecond late on an idle
// system, since they wait in whole ones; this is exact to a twentieth of that. It
// holds a thread meanwhile, so d should be a millisecond or two. Safe for concurrent
// use.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&ts, nil) // it ends early with a signal
}
