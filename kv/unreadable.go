package kv

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// UnreadableError reports a stored record, lock, alert state or node that cannot be decoded. It
// wraps job.ErrInvalid, or job.ErrVersion if a newer program may be able to decode the value.
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

// Job returns the job that the key belongs to, or "".
func (e *UnreadableError) Job() string {
	name, rest, _ := strings.Cut(e.Key, ".")
	switch {
	case strings.HasSuffix(e.Bucket, "_nodes"):
		return ""
	case strings.HasSuffix(e.Bucket, "_state"):
		name = rest // lock.<job> or alert.<job>
	}
	if codec.ValidateName("job", name) != nil {
		return ""
	}
	return name
}

// checkKey returns a decoded value, after it has checked that the value is stored under key: the key
// of the job, slot or node that the value itself names. If it is stored under another one, or err is
// not nil, checkKey returns an *UnreadableError. For a wrong key, its text is the parameter what,
// followed by name.
func checkKey[T any, N string | job.Slot](b wire.Bucket, e wire.Entry, value T, err error, key, what string, name N) (T, error) {
	if err == nil && key != b.Key(e.Subject) {
		err = fmt.Errorf("%w %s %q", job.ErrInvalid, what, name)
	}
	if err != nil {
		var none T
		return none, &UnreadableError{b.Name, b.Key(e.Subject), e.Revision, e.Time, len(e.Data), err}
	}
	return value, nil
}

// RemoveUnreadable overwrites a value that cannot be decoded with a delete marker. If the value
// has changed since, the error is job.ErrConflict. Later reads of the key find no value, at the
// marker's revision. So a writer that was suspended cannot overwrite the marker. Other errors
// are those of Ledger.Write, and job.ErrDenied.
func (s *Store) RemoveUnreadable(ctx context.Context, e *UnreadableError) error {
	b := s.bucketFailingDenied(strings.TrimPrefix(e.Bucket, s.Namespace+"_"))
	return b.Remove(ctx, e.Key, e.Revision)
}
