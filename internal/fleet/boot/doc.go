// Package boot reads a clock that goes on while the machine is suspended.
//
// A lease runs out for the rest of the cluster while a laptop sleeps or a
// virtual machine is paused. Go's monotonic clock (CLOCK_MONOTONIC on Linux)
// stands still meanwhile, so a node that measured its lease with time.Since
// would wake up and still trust itself. The wall clock does go on, but may be
// set by anybody. Hence the time since boot, which goes on and is never set.
//
// Timers and tickers stand still with the monotonic clock: whoever waits for a
// reading of this clock has to look at it again every fraction of a second.
package boot
