package proxy

import (
	"fmt"
	"time"
)

// Distance is how far the servers are away from the clients of a proxy.
type Distance struct {
	// RTT is the time of a round trip.
	RTT time.Duration

	// Bandwidth is how many bytes a second the link carries in each direction, of all connections
	// together. Zero: no limit.
	Bandwidth int
}

// Near is the distance of tests and measurements that name no other: 2 ms, as in any network. On loopback,
// work that grows with what waits goes unnoticed.
var Near = Distance{RTT: 2 * time.Millisecond}

// Validate returns an error unless a proxy can put servers at this distance.
func (d Distance) Validate() error {
	switch {
	case d.RTT < 0 || d.RTT > 10*time.Second:
		return fmt.Errorf("round trip of %v: want 0s to 10s", d.RTT)
	case d.Bandwidth != 0 && d.Bandwidth < 1000:
		return fmt.Errorf("bandwidth of %d bytes a second: want at least 1000, or 0 for no limit", d.Bandwidth)
	}
	return nil
}

// link carries bytes in one direction.
type link struct {
	free time.Time // when it has carried what was sent so far
}

// mostQueued is for how long bytes may stand in front of a slow link. A client that sends more is blocked.
const mostQueued = 50 * time.Millisecond

// send returns when n bytes that are sent now arrive. While too much stands in front of the link, it waits.
func (p *Proxy) send(l *link, n int) (arrives time.Time) {
	for {
		p.mu.Lock()
		now, d := time.Now(), p.distance
		if d.Bandwidth == 0 {
			p.mu.Unlock()
			return now.Add(d.RTT / 2)
		}
		if l.free.Before(now) {
			l.free = now
		}
		queued := l.free.Sub(now)
		if queued <= mostQueued {
			l.free = l.free.Add(time.Duration(float64(n) / float64(d.Bandwidth) * float64(time.Second)))
			arrives = l.free.Add(d.RTT / 2)
			p.mu.Unlock()
			return arrives
		}
		p.mu.Unlock()
		time.Sleep(queued - mostQueued)
	}
}
