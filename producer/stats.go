package producer

import (
	"sync/atomic"
	"time"
)

// Stats counts what a producer has done since New.
type Stats struct {
	// Published counts slots that the stream has acknowledged. Folded counts those of them
	// that the stream already had.
	Published, Folded uint64

	// Retried counts publications that failed and were repeated.
	Retried uint64

	// StoodBy counts copies that were dropped because the slot's owner announced that the slot
	// is stored.
	StoodBy uint64

	// Missed counts slots that a catch-up policy left out, CaughtUp late slots that it let
	// run. Neither counts slots that the stream already had.
	Missed, CaughtUp uint64

	// Standby is the number of copies that this producer now keeps for their owners.
	Standby uint64

	// Turned is when the producer's loop last ran, by this machine's clock; zero before the
	// first time. Run begins the loop when it has read the watermark, and again after a reset of
	// the watermark. From then on the loop runs at least once a second, with or without a broker.
	// Only a further read of the watermark may delay it, by up to 20 s.
	Turned time.Time
}

// Plus returns the sum of two producers' counts. Standby and Turned are those of s.
func (s Stats) Plus(o Stats) Stats {
	s.Published += o.Published
	s.Folded += o.Folded
	s.Retried += o.Retried
	s.StoodBy += o.StoodBy
	s.Missed += o.Missed
	s.CaughtUp += o.CaughtUp
	return s
}

type counters struct {
	published, folded, retried, stoodBy, missed, caughtUp, standby atomic.Uint64

	turned atomic.Pointer[time.Time]
}

// Stats may be called at any time, from any goroutine.
func (p *Producer) Stats() Stats {
	c := &p.stats
	turned := c.turned.Load()
	if turned == nil {
		turned = &time.Time{}
	}
	return Stats{
		Published: c.published.Load(), Folded: c.folded.Load(), Retried: c.retried.Load(), StoodBy: c.stoodBy.Load(),
		Missed: c.missed.Load(), CaughtUp: c.caughtUp.Load(), Standby: c.standby.Load(), Turned: *turned,
	}
}

// turn records that the loop ran.
func (c *counters) turn(standby int) {
	now := time.Now()
	c.turned.Store(&now)
	c.standby.Store(uint64(standby))
}

func (c *counters) acknowledged(it *item, duplicate bool) {
	c.published.Add(1)
	switch {
	case duplicate:
		c.folded.Add(1)
	case it.CaughtUp:
		c.caughtUp.Add(1)
	default:
		c.missed.Add(uint64(it.Missed))
	}
}
