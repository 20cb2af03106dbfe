//go:build !linux

package boot

import "time"

// Nap sleeps for d. Timers of these systems are as exact as any other means. Safe for
// concurrent use.
func Nap(d time.Duration) { time.Sleep(d) }
