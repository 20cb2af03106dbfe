package core

import (
	"time"
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
