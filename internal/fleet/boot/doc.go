// Package boot reads a clock that goes on while the machine is suspended.
//
// A lease expires for the rest of the cluster while a laptop sleeps or a virtual machine is
// paused. Go's monotonic clock (CLOCK_MONOTONIC on Linux) stands still meanwhile, so a node
// that measured its lease with time.Since would wake up and still trust itself. The wall
// clock goes on, but it can be set. The time since boot goes on and cannot be set.
//
// Timers and tickers stand still with the monotonic clock. A goroutine that waits for a
// reading of this clock must poll it.
package boot
