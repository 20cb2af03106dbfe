package doctor

import (
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

const (
	// odd is an offset that a synchronized clock does not have.
	odd = time.Second

	// wrong is the offset beyond which a node does not trust the broker's clock, unless
	// --max-clock-offset allows more.
	wrong = time.Hour
)

// clocks checks the broker's clock and those of the nodes.
func (c *check) clocks() {
	nodes := c.live()
	var apart []string
	for _, n := range nodes {
		if n.ClockOffset.Abs() > wrong {
			apart = append(apart, n.Name)
		}
	}
	if len(apart) > 1 && 2*len(apart) > len(nodes) {
		c.add(Error, "clock", "broker", fmt.Sprintf("its clock is at %s, and more than an hour from those of %d of %d nodes: %s", stamp(c.Now), len(apart), len(nodes), few(apart)),
			"these nodes publish nothing, and slots that are too old wait there, without an outcome", "correct the broker's clock, or those of the nodes")
	} else if by := c.Now.Sub(c.Local); !c.Local.IsZero() && by.Abs() > wrong {
		c.add(Warning, "clock", "broker", fmt.Sprintf("its clock is at %s, this machine's at %s", stamp(c.Now), stamp(c.Local)),
			"slots start by the broker's clock; if it is wrong, slots that started by it cannot be undone", "correct the wrong clock before a producer starts")
	}
	for _, n := range nodes {
		c.clock(n)
	}
}

// clock checks the clock of one node.
func (c *check) clock(n exchange.Node) {
	offset, about := n.ClockOffset.Abs().Round(time.Millisecond), "node "+n.Name
	what := fmt.Sprintf("its clock and the broker's are %v apart", offset)
	mend := "correct the wrong clock: check the node's and the broker's"
	switch {
	case offset > wrong && n.Producer:
		c.add(Error, "clock", about, what,
			"beyond an hour (or --max-clock-offset) it does not produce, and slots that are too old wait there, without an outcome", mend)
	case offset > wrong:
		c.add(Warning, "clock", about, what,
			"beyond an hour (or --max-clock-offset) slots that are too old wait there, without an outcome", mend)
	case offset > odd:
		c.add(Warning, "clock", about, what,
			"the node follows the broker's clock, but its logs and its handlers do not", "synchronize the clocks: chronyd, systemd-timesyncd")
	}
}
