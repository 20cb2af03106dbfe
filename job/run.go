package job

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Handler does the work of one slot. It returns nil when the effect has landed;
// any error is a failed attempt, steered by Permanent and RetryAfter. A panic is
// a failed attempt too.
//
// ctx ends when the worker may no longer act for the slot: its cause is
// ErrLeaseLost, ErrStopping, ErrTimeout, ErrCancelled or ErrReplaced. A handler that ignores ctx cannot be
// killed, and may then overlap with the slot's next attempt: pass Run.Fence and
// the slot ID on to the place where the effect lands.
type Handler func(ctx context.Context, run Run) error

// Run is what a handler is told about the attempt it makes. Use Slot.At, never
// the wall clock, as the time that the work is about.
type Run struct {
	// Slot is the planned run; Slot.ID() is its idempotency key.
	Slot Slot

	// Shard is which part of the slot this is, from 1 to Shards. Both are zero for
	// a slot that is not split.
	Shard, Shards int

	// Attempt counts from 1 over all workers, crashed ones included.
	Attempt int

	// Fence grows with every claim of this slot: a place that remembers the
	// largest fence seen can refuse a zombie.
	Fence uint64

	// Due is when the slot was to be published: the instant plus the spread.
	Due time.Time

	// Node is the incarnation that runs the attempt, Queue where it came from.
	Node, Queue, Namespace string

	// OnLeaseLost is the job's: with LeaseLostFinish the context does not end with
	// the node's lease.
	OnLeaseLost LeaseLost

	// Payload is the job's payload as given; nil when there is none.
	Payload json.RawMessage

	// Output takes what should be kept in the slot's record: the first 4 KiB, or
	// what Job.Output says; the rest is dropped. Writes never fail. Never nil.
	Output io.Writer
}
