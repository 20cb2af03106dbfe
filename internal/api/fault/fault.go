// Package fault sorts the errors of package client into the codes that nodes answer with over
// NATS (docs/protocol.md, "Requests to nodes") and over HTTP (docs/api.md). There is one list,
// so that an error means the same in both.
package fault

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Code is a kind of error.
type Code struct {
	// Status is the code over NATS, and the status over HTTP.
	Status int

	// Name is stable: clients compare it. It is the last part of a problem's type.
	Name string

	// Title says what the code means.
	Title string

	// Retry is how long a client should wait before it tries again. Zero: it may choose.
	Retry time.Duration
}

// The codes that NATS and HTTP have in common.
var (
	Invalid  = Code{http.StatusBadRequest, "invalid", "The request is wrong", 0}
	Denied   = Code{http.StatusForbidden, "denied", "The NATS server does not permit it", 0}
	NotFound = Code{http.StatusNotFound, "not-found", "There is no such job or slot", 0}
	Conflict = Code{http.StatusConflict, "conflict", "Another writer was faster, or the state does not allow it; nothing was changed", 0}
	Unknown  = Code{http.StatusGatewayTimeout, "unknown", "Not answered in time, so the result is unknown: send the same request again", 0}
	Internal = Code{http.StatusInternalServerError, "internal", "An unexpected error", 0}
)

// The codes that only HTTP has.
var (
	Unauthenticated      = Code{http.StatusUnauthorized, "unauthenticated", "Log in first", 0}
	CrossSite            = Code{http.StatusForbidden, "cross-site", "A page of another site sent the request", 0}
	MethodNotAllowed     = Code{http.StatusMethodNotAllowed, "method-not-allowed", "The path does not have this method", 0}
	Changed              = Code{http.StatusPreconditionFailed, "changed", "The job is not what If-Match says; nothing was changed", 0}
	TooLarge             = Code{http.StatusRequestEntityTooLarge, "too-large", "The request is too large", 0}
	MediaType            = Code{http.StatusUnsupportedMediaType, "media-type", "The body has another media type than the operation takes", 0}
	WrongHost            = Code{http.StatusMisdirectedRequest, "wrong-host", "This server does not serve the host name of the request", 0}
	KeyReused            = Code{http.StatusUnprocessableEntity, "key-reused", "The key names a run with another payload", 0}
	PreconditionRequired = Code{http.StatusPreconditionRequired, "precondition-required", "The request needs If-Match", 0}
	Unavailable          = Code{http.StatusServiceUnavailable, "unavailable", "Not possible now: try again", 2 * time.Second}
)

// Shared returns the codes that NATS and HTTP have in common, in the order of the protocol's table.
func Shared() []Code { return []Code{Invalid, Denied, NotFound, Conflict, Unknown, Internal} }

// OnlyHTTP returns the codes that only HTTP has.
func OnlyHTTP() []Code {
	return []Code{Unauthenticated, CrossSite, MethodNotAllowed, Changed, TooLarge, MediaType, WrongHost, KeyReused, PreconditionRequired, Unavailable}
}

// Of returns the code of an error of package client.
func Of(err error) Code {
	switch {
	case isStored(err):
		return Internal
	case errors.Is(err, job.ErrInvalid):
		return Invalid
	case errors.Is(err, job.ErrDenied):
		return Denied
	case errors.Is(err, job.ErrNotFound):
		return NotFound
	case errors.Is(err, job.ErrConflict), errors.Is(err, errors.ErrUnsupported), errors.Is(err, stream.ErrNoTimers):
		return Conflict
	case errors.Is(err, job.ErrUnknown), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unknown
	}
	return Internal
}

// isStored reports whether err is about a stored value that cannot be read. Such an error wraps
// job.ErrInvalid, but the request is right.
func isStored(err error) bool {
	_, value := errors.AsType[*kv.UnreadableError](err)
	_, entry := errors.AsType[*plans.EntryError](err)
	_, timer := errors.AsType[*stream.UnreadableTimerError](err)
	return value || entry || timer
}
