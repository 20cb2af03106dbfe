package job

import (
	"errors"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Causes with which a handler's context ends. The error that context.Cause returns wraps one of
// them.
var (
	// ErrTimeout: the attempt has taken longer than Job.Timeout.
	ErrTimeout = errors.New("timeout")

	// ErrCancelled: an operator has cancelled the slot.
	ErrCancelled = errors.New("cancelled")

	// ErrReplaced: a newer slot of the job has replaced this one (OverlapReplace).
	ErrReplaced = errors.New("replaced")

	// ErrStopping: the worker is shutting down, and its grace period has passed.
	ErrStopping = errors.New("worker is stopping")

	// ErrLeaseLost: the node has lost contact with the broker, so that another node may
	// already run the slot.
	ErrLeaseLost = errors.New("lease lost")
)

// Errors of functions, for errors.Is. If the server has sent an error, it is wrapped too.
var (
	// ErrInvalid: a name, a schedule, a slot ID or a definition is malformed, or a stored
	// value is out of bounds.
	ErrInvalid = codec.ErrInvalid

	// ErrNotFound: there is no such job, slot or node.
	ErrNotFound = errors.New("not found")

	// ErrUnknown: a request was not answered in time. A write may have happened, may still
	// happen, or may never happen. Repeat the same write until it is answered.
	ErrUnknown = errors.New("not answered")

	// ErrConflict: a write was refused because another client wrote first.
	ErrConflict = errors.New("another client wrote first")

	// ErrDenied: the server does not permit the user of this connection to make the request. The
	// server does not say which request it refused, so a denied write is ErrUnknown too.
	ErrDenied = errors.New("not permitted")

	// ErrFull: the server has no storage left for a message, or no room for another consumer.
	ErrFull = errors.New("storage is full")

	// ErrMismatch: what is stored on the broker differs from the options or settings given.
	ErrMismatch = errors.New("stored settings differ")

	// ErrVersion: a stored value has a format that this program does not know. Upgrade this
	// program.
	ErrVersion = codec.ErrVersion

	// ErrStuck: a handler has not returned after its context ended, and the replica was
	// configured to stop then. A handler cannot be killed, but its process can.
	ErrStuck = errors.New("a handler does not return")
)

// Permanent marks err as an error that no retry can fix: the slot ends as Failed, and
// remaining attempts are not used. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err, or an error it wraps, came from Permanent.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// ErrShadow is what a handler returns instead of doing the work: the attempt is a shadow. The
// slot ends as Succeeded, and Record.IsShadow reports true. Jobs that come after it run as
// usual, but no alert and no heartbeat of the success is sent. It is for jobs that another
// scheduler still runs.
var ErrShadow = errors.New("shadow: the work was not done")

// RetryAfter marks err as an error to retry after d, in place of the job's backoff. The
// attempt counts as any other. A negative d is zero. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(d, 0)}
}

// RetryDelay returns the delay that RetryAfter gave to err, or to an error it wraps.
func RetryDelay(err error) (time.Duration, bool) {
	if r, ok := errors.AsType[*retryAfterError](err); ok {
		return r.delay, true
	}
	return 0, false
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

type retryAfterError struct {
	error
	delay time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// faults collects what is wrong with a value.
type faults struct {
	prefix string // of each text, like "on_failure.http"
	errs   []error
}

// add adds an error that wraps ErrInvalid, if wrong is true.
func (f *faults) add(wrong bool, format string, args ...any) {
	if wrong {
		f.errs = append(f.errs, fmt.Errorf("%w %s%s", ErrInvalid, f.prefix, fmt.Sprintf(format, args...)))
	}
}
