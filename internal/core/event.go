package core

import (
	"time"
)

// RegistryEvent is one change of the registry as a watcher sees it, in the order
// of the broker.
type RegistryEvent struct {
	// Name is the job's name; empty in a Ready or Settled event.
	Name string

	// Revision is the registry's last revision that was seen, this change included.
	// In a Ready or Settled event, every entry up to it has been seen.
	Revision uint64

	// Entry is the definition. Not set when Deleted, Ready, Settled or Err is.
	Entry Entry

	// Deleted says that the job was removed, at Time.
	Deleted bool
	Time    time.Time

	// Err says that the stored definition cannot be read. It disables this job
	// only.
	Err error

	// Ready closes the initial listing: all that was stored has been seen.
	Ready bool

	// Settled says that nothing that was written up to Revision is missing. Between
	// two of them it may be: a watch that catches up shows the last write of each job
	// only, in the place of that write.
	Settled bool
}

// NodeEvent is one change of the nodes bucket as a watcher sees it.
type NodeEvent struct {
	Name     string
	Revision uint64

	// Time is the broker's timestamp of the change.
	Time time.Time

	// Node is the record; not set when Gone, Ready or Err is.
	Node  Node
	Gone  bool
	Err   error
	Ready bool
}
