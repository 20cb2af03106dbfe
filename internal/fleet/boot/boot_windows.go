package boot

import (
	"time"

	"golang.org/x/sys/windows"
)

// Now returns the time since the machine started, including suspend, to about 16 ms. All
// processes of one machine read the same clock. Readings of two machines, or from before and
// after a reboot, cannot be compared. Safe for concurrent use.
func Now() time.Duration { return windows.DurationSinceBoot() }
