package boot

import (
	"time"

	"golang.org/x/sys/windows"
)

// Now is the time since the machine started, time spent suspended included, to
// about 16 ms. All processes of one machine read the same clock; readings of two
// machines, or from before and after a reboot, cannot be compared. Safe for
// concurrent use.
func Now() time.Duration { return windows.DurationSinceBoot() }
