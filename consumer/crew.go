package consumer

import "sync/atomic"

// crew does work on goroutines that are used again. A new one begins with a
// small stack, and to make room for what a slot needs took a tenth of a drain's time.
//
// So many wait for more work at most; they go when the consumer does. It is safe for
// concurrent use.
type crew struct {
	work chan func() // from hand to hand: nothing waits in it
	most int64
	idle atomic.Int64
	over chan struct{}
}

func newCrew(most int) *crew {
	return &crew{work: make(chan func()), most: int64(most), over: make(chan struct{})}
}

// do has f done at once, by somebody who is free or by a new goroutine, and does not
// wait for it.
func (c *crew) do(f func()) {
	select {
	case c.work <- f:
	default:
		go c.member(f)
	}
}

// member works until too many have nothing to do, or it is all over.
func (c *crew) member(f func()) {
	for {
		f()
		if c.idle.Add(1) > c.most {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.work:
			c.idle.Add(-1)
		case <-c.over:
			return
		}
	}
}

// dismiss lets go who has nothing to do, and everybody else when it is done.
func (c *crew) dismiss() { close(c.over) }
