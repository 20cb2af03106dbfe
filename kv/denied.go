package kv

import (
	"errors"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
)

// A request that the server does not permit is not answered: the server complains about
// it aside, and the link keeps what it said.

// deniedError is a request that nobody will answer. It is job.ErrUnknown too: the
// complaint does not say of which copy of the request it is.
type deniedError struct{ complaint, err error }

func (e *deniedError) Error() string {
	return job.ErrDenied.Error() + ": " + strings.TrimPrefix(e.complaint.Error(), nats.ErrPermissionViolation.Error()+": ")
}

func (e *deniedError) Unwrap() []error {
	return []error{job.ErrDenied, job.ErrUnknown, e.complaint, e.err}
}

// names reports whether a complaint names just this subject, or one that begins with it.
func names(complaint error, subject string) bool {
	_, after, found := strings.Cut(complaint.Error(), `"`+subject)
	return found && (strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "."))
}

// because is err, of a request that began then, with what the server complained about
// since. It is job.ErrDenied if the complaint names the request's subject.
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
