package replica

import (
	"hash/fnv"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/internal/fleet/node"
)

// beats joins the two halves of a clock sample: when a heartbeat was sent and acknowledged,
// which the writer knows, and its stamp by the broker, which the watch delivers. Either half
// may come first.
type beats struct {
	clock *clock.Clock

	mu       sync.Mutex
	name     string // the incarnation whose heartbeats count
	revision uint64 // of the half that is already here
	sent     time.Duration
	acked    time.Duration
	stamp    time.Time
}

// pause returns how long a node waits before its next heartbeat. The clock is known best
// right after a heartbeat, and slots fall due at full seconds, most of them at full minutes.
// So heartbeats are sent a little before. The offset depends on the name, so that not all
// nodes send at the same time.
func pause(now time.Time, lease time.Duration, name string) time.Duration {
	interval := node.Interval(lease)
	every := interval.Truncate(time.Second)
	if every == 0 {
		return interval
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	before := 50*time.Millisecond + time.Duration(h.Sum32()%200)*time.Millisecond
	wait := every - now.Add(before).Sub(now.Add(before).Truncate(every))
	if wait < 20*time.Millisecond { // the clock was just corrected: this heartbeat was the one for this period
		wait += every
	}
	return min(wait, interval)
}

// track switches to the heartbeats of another incarnation.
func (b *beats) track(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.revision = name, 0
}

// acknowledged adds the writer's half.
func (b *beats) acknowledged(revision uint64, sent, acked time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case revision == b.revision && !b.stamp.IsZero():
		b.clock.Observe(sent, acked, b.stamp)
	case revision > b.revision:
		b.revision, b.sent, b.acked, b.stamp = revision, sent, acked, time.Time{}
	}
}

// stamped adds the broker's half.
func (b *beats) stamped(e exchange.NodeEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case e.Name != b.name || e.Gone || e.Err != nil || e.Ready:
	case e.Revision == b.revision && b.stamp.IsZero():
		b.clock.Observe(b.sent, b.acked, e.Time)
	case e.Revision > b.revision:
		b.revision, b.stamp = e.Revision, e.Time
	}
}
