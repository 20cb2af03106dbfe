package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// unreadable reports slot records and locks that cannot be read. Method nodes reports the records of
// nodes.
func (c *check) unreadable() {
	records := map[string][]*kv.UnreadableError{} // by job, "" for none
	for _, e := range c.Unreadable {
		switch {
		case strings.HasSuffix(e.Bucket, "_state"):
			c.add(Error, "unreadable", "job "+e.Job(), "its lock cannot be read: "+describe(e),
				"no slot of the job starts: each waits until it is older than the horizon, and expires", c.removal(e))
		case strings.HasSuffix(e.Bucket, "_ledger"):
			records[e.Job()] = append(records[e.Job()], e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		of, about := records[name], "job "+name
		if name == "" {
			about = "bucket " + of[0].Bucket
		}
		what := "one of its records cannot be read: "
		if len(of) > 1 {
			what = fmt.Sprintf("%d of its records cannot be read, the first: ", len(of))
		}
		c.add(Error, "unreadable", about, what+describe(of[0]),
			"its slot gets no outcome, and keeps the lock of its job", c.removal(of...))
	}
}

// describe says which value cannot be read, and why.
func describe(e *kv.UnreadableError) string {
	return fmt.Sprintf("key %s of bucket %s, revision %d, %d bytes: %v", e.Key, e.Bucket, e.Revision, e.Size, e.Err)
}

// removal returns the command that removes unreadable values.
func (c *check) removal(all ...*kv.UnreadableError) string {
	for _, e := range all {
		if errors.Is(e, job.ErrVersion) {
			return "run one version of cronce everywhere; if no version wrote it: " + c.cronce("doctor --remove-unreadable --force")
		}
	}
	return c.cronce("doctor --remove-unreadable")
}

// nodeRemoval returns the command that removes the record of a node.
func (c *check) nodeRemoval(n exchange.NodeEvent) string {
	if e, ok := errors.AsType[*kv.UnreadableError](n.Err); ok {
		return c.removal(e)
	}
	return c.cronce("doctor --remove-unreadable")
}
