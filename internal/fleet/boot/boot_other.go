//go:build !darwin && !dragonfly && !freebsd && !linux && !openbsd && !windows

package boot

import "time"

var start = time.Now()

// Now returns the time since this process started, on Go's monotonic clock, because these
// systems have no better one. Readings of two processes cannot be compared. Safe for
// concurrent use.
func Now() time.Duration { return time.Since(start) }
