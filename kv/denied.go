package kv

import (
	"errors"
	"strings"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
)

// A request that the server does not permit is not answered: it is complained about
// aside. The client keeps the last complaint, which is held against the subject.

// deniedError is a request that nobody will answer. It is job.ErrUnknown too: the
// complaint does not say of which copy of the request it is.
type deniedError struct{ complaint, err error }

func (e *deniedError) Error() string {
	return job.ErrDenied.Error() + ": " + strings.TrimPrefix(e.complaint.Error(), nats.ErrPermissionViolation.Error()+": ")
}

func (e *deniedError) Unwrap() []error {
	return []error{job.ErrDenied, job.ErrUnknown, e.complaint, e.err}
}

// complaint is the server's last one about a permission, if err says that a request
// was not answered.
func (w wire) complaint(err error) error {
	if last := w.conn().LastError(); err != nil && errors.Is(last, nats.ErrPermissionViolation) && classify(err) == unanswered {
		return last
	}
	return nil
}

// denied reports whether a request that met err went unanswered because the
// server does not permit it: its last complaint names just this subject, or one
// that begins with it.
func (w wire) denied(subject string, err error) bool {
	complaint := w.complaint(err)
	if complaint == nil {
		return false
	}
	_, after, found := strings.Cut(complaint.Error(), `"`+subject)
	return found && (strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "."))
}

// because is err with what the server complained about, which is job.ErrDenied if
// it names the request's subject.
func (w wire) because(subject string, err error) error {
	switch complaint := w.complaint(err); {
	case complaint == nil:
		return err
	case w.denied(subject, err):
		return &deniedError{complaint, err}
	default:
		return errors.Join(err, complaint)
	}
}
