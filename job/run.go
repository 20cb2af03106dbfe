package job

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/codec/payload"
)

// Handler does the work of one slot. It returns nil when its effect is complete. Any error
// except ErrShadow, or a panic, is a failed attempt; see Permanent and RetryAfter.
//
// When ctx ends, the handler must stop: another worker may start the slot. context.Cause(ctx)
// wraps ErrTimeout, ErrCancelled, ErrReplaced, ErrStopping or ErrLeaseLost. A handler that
// ignores ctx is not killed, and may overlap with the slot's next attempt. To guard against
// that, pass Run.Fence and the slot ID to the system that the handler changes.
//
// A handler is called from several goroutines at once, one for each slot that runs.
type Handler func(ctx context.Context, run Run) error

// Run describes the attempt that a handler makes. If the work depends on a time, such as the
// day of a report, take it from Slot.At and not from the clock: the slot may run late.
type Run struct {
	// Slot is the planned run. Slot.ID() is its idempotency key. If the slot is split, Slot is
	// the shard, whose ID ends like #3of8.
	Slot Slot

	// Shard is the number of the shard that this attempt runs, from 1 to Shards. Both are
	// zero if the slot is not split.
	Shard, Shards int

	// Attempt counts from 1, over all workers. The attempts of workers that crashed count.
	Attempt int

	// Fence grows with each claim of the slot. A system that remembers the largest fence it
	// has seen for a slot can refuse a late write of an older attempt.
	Fence uint64

	// Due is when the slot was due. For a planned slot it is the slot's instant plus the delay
	// of Job.Spread. For a triggered run it is the requested time, or zero if none was given.
	// For a slot of a job with After it is the time at which the last of those jobs succeeded,
	// and for a job with On the time at which the stream stored the message.
	Due time.Time

	// Node is the name of the node that runs the attempt. A process has a new one after each
	// start, and after it has lost its lease. Queue is the job's queue, and Namespace the
	// fleet's namespace.
	Node, Queue, Namespace string

	// OnLeaseLost is that of the job. With LeaseLostFinish the context does not end when
	// the node's lease does.
	OnLeaseLost LeaseLost

	// Payload is that of the job, the triggered run or the message that started the run.
	// Nil: none.
	Payload json.RawMessage

	// Output collects what the handler writes. The slot's record keeps its beginning and its
	// end, at most Job.Output bytes in total. Writes never fail and never wait for the broker.
	Output io.Writer

	// Logger writes lines of slog.LevelInfo and above to Output. It also writes to the log of
	// the process, with the slot's ID and the attempt.
	Logger *slog.Logger

	// Results are those of the jobs in Job.After, by their names; see SetResult. Jobs that set
	// none, and jobs that are split, are missing. Do not change the map.
	Results map[string]json.RawMessage

	// Reporter takes what SetResult and Progress report. A worker sets it. If it is nil,
	// SetResult only checks its argument, and Progress does nothing, so a test can call a
	// handler with its own Run.
	Reporter Reporter
}

// Typed returns a handler that decodes the payload into a T and passes it on. Each attempt gets a
// value of its own.
//
// The payload is decoded strictly. Members that T has no field for, members that are given twice,
// values of another type and arrays that are too long for their Go array are errors. Member names
// are case-sensitive. A type with its own UnmarshalJSON or UnmarshalText decides for itself. A payload
// that cannot be decoded fails the slot for good, without a call of f: see Permanent. The error wraps
// ErrInvalid, and names the member, such as items[3].price.
//
// Without a payload, and for null, the value is the zero value of T. If T is a pointer, that is
// nil, so f can tell an absent payload from an empty one.
//
// If no payload can be decoded into T, for example because T is a channel, every slot with a
// payload fails. If f is nil, the returned handler is nil.
func Typed[T any](f func(ctx context.Context, run Run, payload T) error) Handler {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, run Run) error {
		var value T
		if err := payload.Decode(run.Payload, &value); err != nil {
			return Permanent(err)
		}
		return f(ctx, run, value)
	}
}

// Failure is an attempt that has failed: its handler returned an error or panicked. An attempt that
// an operator cancelled, or that a newer slot replaced, is not a Failure.
type Failure struct {
	// Slot, Attempt and Fence are those of the Run. MaxAttempts is how many attempts the slot
	// may have.
	Slot        Slot
	Attempt     int
	MaxAttempts int
	Fence       uint64

	// Node, Queue and Namespace are those of the Run.
	Node, Queue, Namespace string

	// Final is true if the slot has failed for good. Otherwise its next attempt is due at
	// RetryAt. RetryAt is zero if Final is true.
	Final   bool
	RetryAt time.Time

	// Err is the handler's error. After a panic its text is "panic: " and the value, and it wraps
	// the value if that is an error. If the handler's context had ended, Err wraps the cause, for
	// example ErrTimeout, or ErrStopping if the worker was shutting down.
	Err error

	// Stack is the stack of the goroutine that panicked. Nil: the handler returned an error.
	Stack []byte
}

// Reporter takes what a handler reports while it runs. Its methods are safe for concurrent use.
type Reporter interface {
	// SetResult keeps a result, which is JSON of at most MaxResult bytes.
	SetResult(result json.RawMessage) error

	// Progress keeps the newest progress. It does not wait.
	Progress(p Progress)
}

// Progress is how much of its work an attempt has done.
type Progress struct {
	Done int `json:"done"`

	// Total is how much there is to do. Zero: unknown.
	Total int `json:"total,omitempty"`

	// Text says what is being done, in at most 200 bytes.
	Text string `json:"text,omitempty"`

	// Time is when it was reported.
	Time time.Time `json:"time,omitzero"`
}

// SetResult keeps v, encoded as JSON, as the result of the slot if this attempt succeeds. The
// result is in the slot's record, and in Run.Results of the jobs that come after this one. It is
// for small values, such as counts, IDs and addresses: at most MaxResult bytes of JSON. The last
// call counts; nil removes the result.
//
// If v cannot be encoded or is too large, the error wraps ErrInvalid, and the result of the
// previous call stays. A call after the handler has returned also fails with ErrInvalid.
func (r Run) SetResult(v any) error {
	data, err := codec.Marshal(v)
	switch {
	case err != nil:
		return fmt.Errorf("set result: %w value: %w", ErrInvalid, err)
	case len(data) > MaxResult:
		return fmt.Errorf("set result: %w value: %d bytes of JSON, at most %d KiB", ErrInvalid, len(data), MaxResult>>10)
	case r.Reporter == nil:
		return nil
	case string(data) == "null":
		data = nil
	}
	if err := r.Reporter.SetResult(data); err != nil {
		return fmt.Errorf("set result: %w", err)
	}
	return nil
}

// Progress reports that done of total units are done, and what is being done. A total of zero
// means that it is unknown. "cronce slot show" shows the newest report while the attempt runs,
// and "cronce watch" one report a second. Reports are not stored. Progress never waits for the
// broker, and may be called as often as you like. It keeps the first 200 bytes of the text.
func (r Run) Progress(done, total int, text string) {
	if r.Reporter != nil {
		r.Reporter.Progress(Progress{Done: max(done, 0), Total: max(total, 0), Text: codec.ClipTo(strings.ToValidUTF8(text, "\uFFFD"), codec.MaxOldBytes)})
	}
}

func (p *Progress) bound(b *codec.Bounds) {
	b.Number("progress.done", p.Done, 0, codec.MaxCount)
	b.Number("progress.total", p.Total, 0, codec.MaxCount)
	b.Times("progress.time", &p.Time)
	codec.CutText(codec.MaxText, &p.Text)
}
