package job

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Handler does the work of one slot. It returns nil when its effect is complete. Any other
// error, or a panic, is a failed attempt; see Permanent and RetryAfter.
//
// When ctx ends, the handler must stop: another worker may start the slot. context.Cause(ctx)
// is ErrTimeout, ErrCancelled, ErrReplaced, ErrStopping or ErrLeaseLost. A handler that
// ignores ctx is not killed, and may overlap with the slot's next attempt. To guard against
// that, pass Run.Fence and the slot ID to the system that the handler changes.
//
// A handler is called from several goroutines at once, one for each slot that runs.
type Handler func(ctx context.Context, run Run) error

// Run describes the attempt that a handler makes. If the work depends on a time, such as the
// day of a report, take it from Slot.At and not from the clock: the slot may run late.
type Run struct {
	// Slot is the planned run. Slot.ID() is its idempotency key.
	Slot Slot

	// Shard is the number of the part that this attempt runs, from 1 to Shards. Both are
	// zero if the slot is not split.
	Shard, Shards int

	// Attempt counts from 1, over all workers. The attempts of workers that crashed count.
	Attempt int

	// Fence grows with each claim of the slot. A system that remembers the largest fence it
	// has seen for a slot can refuse a late write of an older attempt.
	Fence uint64

	// Due is the slot's instant plus the delay of Job.Spread.
	Due time.Time

	// Node is the name of the process that runs the attempt.
	Node, Queue, Namespace string

	// OnLeaseLost is that of the job. With LeaseLostFinish the context does not end when
	// the node's lease does.
	OnLeaseLost LeaseLost

	// Payload is that of the job, the triggered run or the message that started the run.
	// Nil: none.
	Payload json.RawMessage

	// Output keeps what is written to it in the slot's record, up to Job.Output bytes. It
	// drops the rest. It is never nil, and its writes never fail.
	Output io.Writer
}
