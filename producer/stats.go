package producer

import (
	"sync/atomic"
	"time"
)

// Stats counts what a producer has done since it was made.
type Stats struct {
	// Published counts slots that the stream has acknowledged, Folded those of
	// them of which it had a copy already.
	Published, Folded uint64

	// Retried counts publications that failed and were repeated.
	Retried uint64

	// StoodBy counts slots that were held for the producer whose share they were
	// and that it published.
	StoodBy uint64

	// Missed counts slots that a catch-up policy left out, CaughtUp those that
	// it let run.
	Missed, CaughtUp uint64

	// Standing is how many copies are held now for the producers whose share they
	// are.
	Standing uint64

	// Turned is when the producer's loop last came round, by this machine's
	// clock; zero before its first turn. While Run runs it does so every few
	// seconds, whether or not there is a broker.
	Turned time.Time
}

// Plus adds up what two producers counted. Of the two, what is now is s's.
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
	published, folded, retried, stoodBy, missed, caughtUp, standing atomic.Uint64

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
		Missed: c.missed.Load(), CaughtUp: c.caughtUp.Load(), Standing: c.standing.Load(), Turned: *turned,
	}
}

// turn notes a turn of the loop.
func (c *counters) turn(standing int) {
	now := time.Now()
	c.turned.Store(&now)
	c.standing.Store(uint64(standing))
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
