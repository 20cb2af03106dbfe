package job

import (
	"errors"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// The sentinels of the whole project. Packages that talk to a broker wrap them
// around the server's own error, so that both answer to errors.Is.
var (
	// ErrConflict says that a write named a revision that is no longer the
	// last one: somebody else wrote first. It is a definite no.
	ErrConflict = errors.New("somebody else wrote first")

	// ErrUnknown says that a write was not answered in time: it may have
	// happened, it may still happen, it may never happen. Only the same write
	// at the same revision, repeated until it is answered, settles it.
	ErrUnknown = errors.New("not answered: it may have happened")

	// ErrDenied says that the server does not permit a request to the user of
	// this connection. The server tells it aside, and not of which copy of the
	// request: so a denied write is ErrUnknown as well.
	ErrDenied = errors.New("not permitted")

	// ErrFull says that a message was refused for want of storage.
	ErrFull = errors.New("storage is full")

	// ErrNotFound says that there is no such job, slot or node.
	ErrNotFound = errors.New("not found")

	// ErrMismatch says that what is stored on the broker differs from what was
	// asked for, in a way that matters.
	ErrMismatch = errors.New("stored settings differ")

	// ErrVersion says that a stored value is of a format that this program
	// does not know.
	ErrVersion = codec.ErrVersion

	// ErrInvalid says that a name, a schedule, a slot ID or a definition is
	// not well formed. It can be known without a server.
	ErrInvalid = codec.ErrInvalid

	// ErrLeaseLost is the cause with which a handler's context ends when its
	// node can no longer prove that it is alive: another node may already run
	// the slot.
	ErrLeaseLost = errors.New("lease lost")

	// ErrStopping is the cause with which a handler's context ends when its
	// worker stops and the grace period has passed.
	ErrStopping = errors.New("worker is stopping")

	// ErrStuck is the error with which a replica ends that is to end when one of its
	// handlers does not return after its context has ended. A handler cannot be
	// killed, but its process can.
	ErrStuck = errors.New("a handler does not return")

	// ErrTimeout is the cause with which a handler's context ends when the
	// job's timeout has passed.
	ErrTimeout = errors.New("timeout")

	// ErrCancelled is the cause with which a handler's context ends when an
	// operator cancels its slot.
	ErrCancelled = errors.New("cancelled")

	// ErrReplaced is the cause with which a handler's context ends when a newer
	// slot of its job takes its place.
	ErrReplaced = errors.New("replaced")
)

// Permanent marks err as one that no retry can mend: the slot ends failed at
// once, whatever attempts are left. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err, or an error it wraps, came from Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryAfter marks err as one to be retried no sooner than d from now, in place
// of the job's own backoff. The attempts still count. A negative d is zero.
// RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{max(d, 0), err}
}

// RetryDelay returns the delay that err, or an error it wraps, asks for.
func RetryDelay(err error) (time.Duration, bool) {
	var r *retryAfterError
	if errors.As(err, &r) {
		return r.delay, true
	}
	return 0, false
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }

type retryAfterError struct {
	delay time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }

func (e *retryAfterError) Unwrap() error { return e.err }
