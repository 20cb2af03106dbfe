// Package action has the common parts of the actions that call a service: the headers of a request,
// its timeout, and which answers are final.
//
// A service gets the same headers whatever carries the request. The idempotency key is the
// slot ID, so a service that has seen it can answer without doing the work again. Outside
// the default namespace the key begins with the namespace, because two applications may have
// jobs of the same name and call the same service. The attempt counts the tries. With the fence a
// service can distinguish a late request from the current one.
//
// The statuses 400, 410 and 422 are final: the same request would be refused again. All
// other errors are retried, even 404, which a proxy returns while a service is being
// deployed.
//
// Answers of services are recorded and logged, and services repeat what they received. So
// the secrets of a request are removed from them, see [Hider].
package action

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/job"
)

// DefaultTimeout bounds a call if neither its action nor its job has a timeout. A service
// that never answers must not hold its slot for ever.
const DefaultTimeout = time.Minute

// Header is one name and value.
type Header struct{ Name, Value string }

// Headers returns the headers that describe the slot, and its trace if ctx has one. Values
// contain no line breaks, see job.ValidateToken.
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

// NewRequest returns a request to a URL, whose user and password it sends. Its errors do not show the
// URL.
func NewRequest(ctx context.Context, method string, u *url.URL, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "/", body)
	if err != nil {
		return nil, err
	}
	req.URL = u
	req.Header.Set("User-Agent", "cronce")
	if u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	return req, nil
}

// Key returns the idempotency key, which is the same for all attempts of a slot and differs
// from that of every other slot.
func Key(run job.Run) string {
	if run.Namespace == job.DefaultNamespace {
		return run.Slot.ID()
	}
	return run.Namespace + "/" + run.Slot.ID()
}

// Instant returns the instant of a slot as RFC 3339, or "" for a triggered run.
func Instant(s job.Slot) string {
	if s.Token != "" {
		return ""
	}
	return s.At.UTC().Format(time.RFC3339)
}

// Rejected reports whether an error status is final.
func Rejected(status int) bool { return status == 400 || status == 410 || status == 422 }

// WithTimeout bounds a call. Zero means DefaultTimeout, unless ctx already has a deadline:
// then the timeout of the job applies alone.
func WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		if _, bounded := ctx.Deadline(); bounded {
			return context.WithCancel(ctx)
		}
		timeout = DefaultTimeout
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w of %v", job.ErrTimeout, timeout))
}

// Reason returns why a call failed: the cause of ctx if ctx has ended, since err then says only that
// ctx has ended, and otherwise err.
func Reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
