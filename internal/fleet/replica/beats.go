package replica

import (
	"hash/fnv"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/fleet/clock"
)

// beats brings together the two halves of what a heartbeat says about the clock:
// when it was sent and acknowledged, which the writer knows, and the broker's
// stamp on it, which comes with the watch. Either may come first.
type beats struct {
	clock *clock.Clock

	mu       sync.Mutex
	name     string // the incarnation whose heartbeats are looked at
	revision uint64 // of the half that waits for the other
	sent     time.Duration
	acked    time.Duration
	stamp    time.Time
}

// pause is how long to wait for the next heartbeat of a node. The clock is known best
// right after one, and slots fall due at full seconds, most of them at full minutes: so
// heartbeats come a little before. Each node has its own moment, so that they do not
// all come at once.
func pause(now time.Time, lease time.Duration, name string) time.Duration {
	every := (lease / 10).Truncate(time.Second)
	if every == 0 {
		return lease / 10
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	before := 50*time.Millisecond + time.Duration(h.Sum32()%200)*time.Millisecond
	wait := every - now.Add(before).Sub(now.Add(before).Truncate(every))
	if wait < 20*time.Millisecond { // this was it, by a clock that has just been corrected
		wait += every
	}
	return min(wait, lease/10)
}

// follow looks at the heartbeats of another incarnation from now on.
func (b *beats) follow(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.revision = name, 0
}

// acknowledged takes in the writer's half.
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

// stamped takes in the broker's half.
func (b *beats) stamped(e core.NodeEvent) {
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
