//go:build !linux

package boot

import "time"

// Nap sleeps for d. On these systems a timer is as exact as anything else. Safe for
// concurrent use.
func Nap(d time.Duration) { time.Sleep(d) }
