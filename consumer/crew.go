package consumer

import "sync"

// crew does work on goroutines that are used again. A new one begins with a
// small stack, and to make room for what a slot needs took a tenth of a drain's time.
//
// So many wait for more work at most; they go when the consumer does. Who came last to
// wait works first: so few do most of it, and what they need is at hand. It is safe for
// concurrent use.
type crew struct {
	most int

	mu   sync.Mutex
	idle []chan func() // what each of them is to do next
	over bool
}

func newCrew(most int) *crew { return &crew{most: most} }

// do has f done at once, by somebody who is free or by a new goroutine, and does not
// wait for it.
func (c *crew) do(f func()) {
	c.mu.Lock()
	last := len(c.idle) - 1
	if last < 0 {
		c.mu.Unlock()
		go c.member(f)
		return
	}
	free := c.idle[last]
	c.idle = c.idle[:last]
	c.mu.Unlock()
	free <- f // it has room for one
}

// run is do of a slot's handler.
func (c *crew) run(t *task) { c.do(t.run) }

// member works until too many have nothing to do, or it is all over.
func (c *crew) member(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !c.wait(next) {
			return
		}
		f = <-next
	}
}

// wait enters one who has nothing to do; false: enough wait.
func (c *crew) wait(next chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || len(c.idle) >= c.most {
		return false
	}
	c.idle = append(c.idle, next)
	return true
}

// dismiss lets go who has nothing to do, and everybody else when it is done.
func (c *crew) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, next := range c.idle {
		close(next)
	}
	c.idle = nil
}
