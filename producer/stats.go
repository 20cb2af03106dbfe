package producer

import "sync/atomic"

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
}

type counters struct {
	published, folded, retried, stoodBy, missed, caughtUp atomic.Uint64
}

// Stats may be called at any time, from any goroutine.
func (p *Producer) Stats() Stats {
	c := &p.stats
	return Stats{
		Published: c.published.Load(), Folded: c.folded.Load(), Retried: c.retried.Load(), StoodBy: c.stoodBy.Load(),
		Missed: c.missed.Load(), CaughtUp: c.caughtUp.Load(),
	}
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
