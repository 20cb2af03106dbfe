package kv

import (
	"errors"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
)

// The server does not answer a request that it does not permit. It reports a permission
// violation to the connection's error handler, and the link keeps these reports.

// deniedError is a request that the server will not answer. It is also job.ErrUnknown,
// because the report does not say which copy of the request the server denied.
type deniedError struct{ complaint, err error }

func (e *deniedError) Error() string {
	return job.ErrDenied.Error() + ": " + strings.TrimPrefix(e.complaint.Error(), nats.ErrPermissionViolation.Error()+": ")
}

func (e *deniedError) Unwrap() []error {
	return []error{job.ErrDenied, job.ErrUnknown, e.complaint, e.err}
}

// names reports whether a complaint names this subject, or a subject that begins with it
// and a dot.
func names(complaint error, subject string) bool {
	_, after, found := strings.Cut(complaint.Error(), `"`+subject)
	return found && (strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "."))
}

// because adds to err the complaints of the server since began, when the request started.
// The result is job.ErrDenied if a complaint names the request's subject.
func (w wire) because(subject string, began time.Time, err error) error {
	if classify(err) != unanswered {
		return err
	}
	switch about, any := w.link().complaintSince(began, subject); {
	case about != nil:
		return &deniedError{about, err}
	case any != nil:
		return errors.Join(err, any)
	default:
		return err
	}
}
