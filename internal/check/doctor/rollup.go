package doctor

import (
	"fmt"

	"github.com/cronce-io/cronce/kv"
)

// rollup reports buckets from which one message can remove others.
func (c *check) rollup() {
	if where := c.tolerated(kv.FieldRollup); len(where) > 0 {
		c.add(Warning, "rollup", "", fmt.Sprintf("roll-up and purge are allowed in %s, which an older version made", few(where)),
			"one message with the header Nats-Rollup, from any login that may write one key there, removes all others", c.cronce("setup"))
	}
}

// batches reports streams that take no atomic batches, although the server knows them.
func (c *check) batches() {
	if where := c.tolerated(kv.FieldBatches); len(where) > 0 {
		c.add(Note, "batches", "", fmt.Sprintf("atomic batches are denied in %s, which an older version made", few(where)),
			"a node that brings in thousands of jobs waits for one sync of the disk for each", c.cronce("setup"))
	}
}

// tolerated returns the streams and buckets that nodes work with although this field of
// them differs from what Setup makes.
func (c *check) tolerated(field string) (where []string) {
	for _, d := range c.Survey.Differences {
		if d.Tolerated && d.Field == field {
			where = append(where, d.Where)
		}
	}
	return where
}
