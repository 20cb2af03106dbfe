package doctor

import "fmt"

// rollup is about what is made otherwise than Setup makes it now, and works all the
// same.
func (c *check) rollup() {
	var where []string
	for _, d := range c.Survey.Differences {
		if d.Tolerated {
			where = append(where, d.Where)
		}
	}
	if len(where) > 0 {
		c.add(Warning, "rollup", "", fmt.Sprintf("roll-up and purge are allowed in %s, which an older version made", few(where)),
			"one message with the header Nats-Rollup, from any login that may write one key there, removes all others", c.cronce("setup"))
	}
}
