package doctor

import (
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

const (
	// odd is an offset that a clock which is kept right does not have.
	odd = time.Second

	// wrong is the offset beyond which a node does not believe the broker's clock,
	// unless --max-clock-offset says otherwise.
	wrong = time.Hour
)

// clocks is about the broker's clock, and those of the nodes.
func (c *check) clocks() {
	nodes := c.live()
	var doubts []string
	for _, n := range nodes {
		if n.ClockOffset.Abs() > wrong {
			doubts = append(doubts, n.Name)
		}
	}
	if len(doubts) > 1 && 2*len(doubts) > len(nodes) {
		c.add(Error, "clock", "broker", fmt.Sprintf("its clock is at %s, and more than an hour from those of %d of %d nodes: %s", stamp(c.Now), len(doubts), len(nodes), few(doubts)),
			"these nodes publish nothing, and no slot ends by its age on them: it waits", "set the broker's clock right, or those of the nodes")
	} else if by := c.Now.Sub(c.Local); !c.Local.IsZero() && by.Abs() > wrong {
		c.add(Warning, "clock", "broker", fmt.Sprintf("its clock is at %s, this machine's at %s", stamp(c.Now), stamp(c.Local)),
			"slots go by the broker's clock; if that is the wrong one, what is done by it cannot be taken back", "set the clock that is wrong, before anything produces")
	}
	for _, n := range nodes {
		c.clock(n)
	}
}

// clock is about one node's.
func (c *check) clock(n core.Node) {
	offset, about := n.ClockOffset.Abs().Round(time.Millisecond), "node "+n.Name
	mend := "set the clock that is wrong: of the two, look at the broker's too"
	switch {
	case offset > wrong && n.Producer:
		c.add(Error, "clock", about, fmt.Sprintf("its clock and the broker's are %v apart", offset),
			"beyond an hour (or --max-clock-offset) it does not produce, and slots that are too old wait there, without an outcome", mend)
	case offset > wrong:
		c.add(Warning, "clock", about, fmt.Sprintf("its clock and the broker's are %v apart", offset),
			"beyond an hour (or --max-clock-offset) slots that are too old wait there, without an outcome", mend)
	case offset > odd:
		c.add(Warning, "clock", about, fmt.Sprintf("its clock and the broker's are %v apart", offset),
			"it goes by the broker's, as far as it knows it, but its logs and its handlers do not", "keep the clocks right: chronyd, systemd-timesyncd")
	}
}
