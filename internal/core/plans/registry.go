package plans

import (
	"errors"
	"time"
)

// RegistryEvent is one change of the registry, as a watch delivers it in the broker's order.
type RegistryEvent struct {
	// Name is the job's name. It is empty if Ready or Settled is set.
	Name string

	// Revision is the newest revision of the registry that was delivered. If Ready or
	// Settled is set, every entry up to it was delivered.
	Revision uint64

	// Entry is the definition. It is not set if Deleted, Ready, Settled or Err is.
	Entry Entry

	// Deleted is true if the job was removed, at Time.
	Deleted bool
	Time    time.Time

	// Err is why the stored definition cannot be read. Only this job is disabled then.
	Err error

	// Ready marks the event that follows all values that were stored when the watch began.
	Ready bool

	// Settled is true if no write up to Revision is missing. A watch that catches up delivers
	// only the last write of each job, so between two Settled events older entries may be
	// missing.
	Settled bool
}

// EntryError is the error of a stored definition that cannot be read. Only the job of that
// definition is disabled then.
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

// SplitEntryErrors splits the error of a list of jobs: entries are the definitions that cannot be
// read, and rest is any other error.
func SplitEntryErrors(err error) (entries []*EntryError, rest error) {
	parts := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	for _, part := range parts {
		if broken, ok := errors.AsType[*EntryError](part); ok {
			entries = append(entries, broken)
		} else {
			rest = errors.Join(rest, part)
		}
	}
	if len(entries) == 0 {
		return nil, err
	}
	return entries, rest
}
