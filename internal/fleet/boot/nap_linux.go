package boot

import (
	"time"

	"golang.org/x/sys/unix"
)

// Nap sleeps for at most d. Go's timers are up to a millisecond late on an idle system,
// because they wait in whole milliseconds; Nap is exact to a twentieth of that. It blocks a
// thread, so d should be a millisecond or two. Safe for concurrent use.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early
}
