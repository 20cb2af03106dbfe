package boot

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine started, including suspend. All processes of one
// machine read the same clock. Readings of two machines, or from before and after a reboot,
// cannot be compared. Safe for concurrent use.
func Now() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		// Only a sandbox that emulates a kernel from before 2011 refuses it.
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	}
	return time.Duration(ts.Nano())
}
