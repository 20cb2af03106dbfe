package core

import (
	"errors"
	"time"

	"github.com/cronce-io/cronce/job"
)

// EntryError says that the stored definition of one job cannot be read. It
// disables that job, and no other.
type EntryError struct {
	// Name is the entry's key; what the value says may be anything.
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
