//go:build !darwin && !dragonfly && !freebsd && !linux && !openbsd && !windows

package boot

import "time"

var start = time.Now()

// Now is the time since this process started, on Go's monotonic clock: these
// systems offer nothing better. Readings of two processes cannot be compared.
// Safe for concurrent use.
func Now() time.Duration { return time.Since(start) }
