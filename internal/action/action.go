// Package action holds what the actions that call a service have in common:
// what they tell it about its slot, how long they wait for it, and which of its
// answers are final.
//
// A service hears the same whatever carries it: the idempotency key, which is
// the slot's one name, so that a service that has seen it can answer without
// doing the work again; the attempt; and the fence, which tells a late request
// from the current one. The key is the slot ID. Outside the default namespace it
// begins with the namespace, since two applications may have a job of one name
// and call one service.
//
// An error of the service says "not this way" or "not now". 400, 410 and 422 are
// the first kind: the same request would be refused again. Everything else may
// pass, even a 404, which is what a proxy says while a service is being deployed.
//
// What a service says is kept and logged, and services repeat what they were asked: so
// the secrets of a request are taken out of it, see [Hide].
package action

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// DefaultTimeout bounds a call when neither its action nor its job sets one: a
// service that never answers must not hold its slot, and a place, for ever.
const DefaultTimeout = time.Minute

// Header is one name and value.
type Header struct{ Name, Value string }

// Headers tell a service about the slot that it is called for, and of the trace of
// ctx, if it has one. Values hold no line breaks, see job.ValidateToken.
func Headers(ctx context.Context, run job.Run) []Header {
	headers := []Header{
		{"Idempotency-Key", Key(run)},
		{"Cronce-Job", run.Slot.Job},
		{"Cronce-Slot-Id", run.Slot.ID()},
		{"Cronce-Attempt", strconv.Itoa(run.Attempt)},
		{"Cronce-Fence", strconv.FormatUint(run.Fence, 10)},
	}
	if at := Instant(run.Slot); at != "" {
		headers = append(headers, Header{"Cronce-Slot", at})
	}
	if run.Shards > 0 {
		headers = append(headers, Header{"Cronce-Shard", strconv.Itoa(run.Shard)}, Header{"Cronce-Shards", strconv.Itoa(run.Shards)})
	}
	switch {
	case len(run.Payload) == 0:
	case json.Valid(run.Payload):
		headers = append(headers, Header{"Content-Type", "application/json"})
	default: // a message of a stream may be anything
		headers = append(headers, Header{"Content-Type", "application/octet-stream"})
	}
	for name, value := range tracing.Headers(ctx) {
		headers = append(headers, Header{name, value})
	}
	return headers
}

// Key is the same for all attempts of a slot, and for no other slot.
func Key(run job.Run) string {
	if run.Namespace == job.DefaultNamespace {
		return run.Slot.ID()
	}
	return run.Namespace + "/" + run.Slot.ID()
}

// Instant is the slot's, as RFC 3339; empty for a triggered run, which has none.
func Instant(s job.Slot) string {
	if s.Token != "" {
		return ""
	}
	return s.At.UTC().Format(time.RFC3339)
}

// Rejected reports whether an error status means that no repetition will do.
func Rejected(status int) bool { return status == 400 || status == 410 || status == 422 }

// WithTimeout bounds a call. Zero is DefaultTimeout, unless ctx has a deadline
// already: a job's timeout then stands alone.
func WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		if _, bounded := ctx.Deadline(); bounded {
			return context.WithCancel(ctx)
		}
		timeout = DefaultTimeout
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w of %v", job.ErrTimeout, timeout))
}

// Reason is why a call failed: the cause of ctx when that has ended, since err is
// then only its echo.
func Reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
