package replica

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/internal/fleet/node"
)

// beats makes a clock sample from each heartbeat of this replica. The node knows when the heartbeat
// was sent and acknowledged. The broker's timestamp comes from the watch of the nodes. While this
// replica does not watch, readStamps reads it. Either half of a sample may come first.
type beats struct {
	clock    *clock.Clock
	watching func() bool
	read     func(ctx context.Context, name string) (exchange.NodeEvent, error)
	unread   chan struct{} // has an element if the timestamp of a heartbeat is to be read

	mu          sync.Mutex
	name        string // the current incarnation
	revision    uint64 // of the newest heartbeat of which a half is known
	sent, acked time.Duration
	stamp       time.Time // zero: not known yet
}

func newBeats(c *clock.Clock, watching func() bool, read func(context.Context, string) (exchange.NodeEvent, error)) *beats {
	return &beats{clock: c, watching: watching, read: read, unread: make(chan struct{}, 1)}
}

// switchTo begins to record the heartbeats of a new incarnation, and forgets those of the last one.
func (b *beats) switchTo(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.revision = name, 0
}

// acknowledged adds the node's half of a sample.
func (b *beats) acknowledged(revision uint64, sent, acked time.Duration) {
	b.mu.Lock()
	switch {
	case revision == b.revision && !b.stamp.IsZero():
		b.clock.Observe(sent, acked, b.stamp)
	case revision > b.revision:
		b.revision, b.sent, b.acked, b.stamp = revision, sent, acked, time.Time{}
	}
	b.mu.Unlock()
	if !b.watching() {
		core.TrySend(b.unread, struct{}{})
	}
}

// stamped adds the broker's half of a sample.
func (b *beats) stamped(e exchange.NodeEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case e.Name != b.name || e.Gone || e.Err != nil || e.Ready:
	case e.Revision == b.revision && b.stamp.IsZero():
		b.stamp = e.Time
		b.clock.Observe(b.sent, b.acked, b.stamp)
	case e.Revision > b.revision:
		b.revision, b.stamp = e.Revision, e.Time
	}
}

// readStamps reads the timestamps of heartbeats that no watch delivers, until ctx ends.
func (b *beats) readStamps(ctx context.Context, name string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.unread:
		}
		// If the read fails, the next heartbeat gives another sample.
		if e, err := b.read(ctx, name); err == nil {
			b.stamped(e)
		}
	}
}

// pauseBeforeBeat returns how long a node waits before its next heartbeat. The clock is known best
// right after a heartbeat, and slots are due at full seconds, most of them at full minutes. So a
// heartbeat is sent shortly before a full second. How long before depends on the name, so that not
// all nodes send at the same time.
func pauseBeforeBeat(now time.Time, lease time.Duration, name string) time.Duration {
	interval := node.Interval(lease)
	every := interval.Truncate(time.Second)
	if every == 0 {
		return interval
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	before := 50*time.Millisecond + time.Duration(h.Sum32()%200)*time.Millisecond
	wait := every - now.Add(before).Sub(now.Add(before).Truncate(every))
	if wait < 20*time.Millisecond { // this period's heartbeat was just sent, and corrected the clock
		wait += every
	}
	return min(wait, interval)
}

// firstPause bounds the pause between two heartbeats while the broker's clock is not known: the node
// may not act before, and a tenth of a long lease would be a long wait.
const firstPause = 2 * time.Second

// pauseBeforeAnyBeat is pauseBeforeBeat, except while the clock is not known.
func pauseBeforeAnyBeat(c *clock.Clock, lease time.Duration, name string) time.Duration {
	pause := pauseBeforeBeat(c.Now(), lease, name)
	if !core.IsClosed(c.Known()) {
		pause = min(pause, firstPause)
	}
	return pause
}
