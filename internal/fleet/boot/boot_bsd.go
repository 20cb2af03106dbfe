//go:build darwin || dragonfly || freebsd || openbsd

package boot

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine started, including suspend if the system counts it
// (macOS does). All processes of one machine read the same clock. Readings of two machines,
// or from before and after a reboot, cannot be compared. Safe for concurrent use.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it fails for an unknown clock only
	return time.Duration(ts.Nano())
}
