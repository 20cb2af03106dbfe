package core

import (
	"errors"
	"time"

	"github.com/cronce-io/cronce/job"
)

// EntryError is the error of a stored definition that cannot be read. It disables that job
// only.
type EntryError struct {
	// Name is the entry's key. The name in the value cannot be trusted.
	Name     string
	Revision uint64

	// Time is the broker's timestamp of the entry.
	Time time.Time

	// Err wraps ErrInvalid or ErrVersion.
	Err error
}

func (e *EntryError) Error() string {
	return "the stored definition of job " + e.Name + " is broken: " + e.Err.Error()
}

func (e *EntryError) Unwrap() error { return e.Err }

// IsUnreadable reports whether err concerns one stored value, which this program cannot
// read, and not the broker. The caller can skip the value and go on.
func IsUnreadable(err error) bool {
	return errors.Is(err, job.ErrVersion) || errors.Is(err, job.ErrInvalid)
}
