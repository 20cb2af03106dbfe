package kv

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// UnreadableError is why a stored record, lock or node cannot be read. It wraps
// job.ErrInvalid, or job.ErrVersion if a newer program may read the value.
type UnreadableError struct {
	Bucket, Key string
	Revision    uint64
	Time        time.Time // the broker's timestamp
	Size        int       // in bytes
	Err         error
}

func (e *UnreadableError) Error() string { return fmt.Sprintf("%s/%s: %v", e.Bucket, e.Key, e.Err) }

// Unwrap returns Err.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Job is the job of the key; empty if it is of none.
func (e *UnreadableError) Job() string {
	name, rest, _ := strings.Cut(e.Key, ".")
	switch {
	case strings.HasSuffix(e.Bucket, "_nodes"):
		return ""
	case strings.HasSuffix(e.Bucket, "_state"):
		name = rest // lock.<job>
	}
	if codec.ValidateName("job", name) != nil {
		return ""
	}
	return name
}

func (b bucket) unreadable(e entry, err error) error {
	return &UnreadableError{b.name, b.key(e.subject), e.revision, e.time, len(e.data), err}
}

// RemoveUnreadable puts a marker in place of a value that cannot be read, unless it has
// changed: job.ErrConflict. What is read of the key next is that it has no value, at
// the marker's revision: a writer who has slept cannot write over that. Other errors
// are those of Ledger.Write, and job.ErrDenied.
func (s *Store) RemoveUnreadable(ctx context.Context, e *UnreadableError) error {
	b := s.bucket(strings.TrimPrefix(e.Bucket, s.namespace+"_"))
	b.tellDenied = true
	return b.remove(ctx, e.Key, e.Revision)
}
