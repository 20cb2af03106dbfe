package kv

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Headers of a record. The sweep reads only these, and not the bodies of the records, to find
// slots that have not changed for too long.
const (
	HeaderState   = "Cronce-State"
	HeaderOwner   = "Cronce-Owner"
	HeaderRetryAt = "Cronce-Retry-At"
)

// recordHeader sets the headers of a record.
func recordHeader(r job.Record, set func(name, value string)) {
	set(HeaderState, string(r.State))
	if r.State == job.Running {
		set(HeaderOwner, r.Node)
	}
	if !r.RetryAt.IsZero() {
		set(HeaderRetryAt, r.RetryAt.UTC().Format(time.RFC3339Nano))
	}
}

// Change is the last write of one slot's record, without its body.
type Change struct {
	Slot     job.Slot
	Revision uint64

	// Time is the broker's timestamp.
	Time time.Time

	// Gone is true if the record was removed.
	Gone bool

	// State is empty if the write has no valid state header.
	State job.State

	// Node is the owner of a running slot. RetryAt is the time of the next attempt of a
	// retrying slot.
	Node    string
	RetryAt time.Time
}

// Changes iterates over the last writes of all slots after the cursor, in stream order, and
// advances the cursor. It reads only headers. Like List, it may miss the newest writes. It
// stops at the first error.
func (l *Ledger) Changes(ctx context.Context, at *wire.Cursor) iter.Seq2[Change, error] {
	return decodeEach(l.b.Changes(ctx, at, true), func(e wire.Entry) (Change, bool, error) {
		change, ok := l.change(e)
		return change, ok, nil
	})
}

// LockChange is the last write of one job's lock. If the lock was removed, Lock has only its
// Job set.
type LockChange struct {
	core.Lock

	// Time is the broker's timestamp.
	Time time.Time
}

// Changes is like Ledger.Changes, for the locks. It leaves out locks that it cannot read.
func (l *Locks) Changes(ctx context.Context, at *wire.Cursor) iter.Seq2[LockChange, error] {
	return decodeEach(l.b.Changes(ctx, at, false), func(e wire.Entry) (LockChange, bool, error) {
		name, isLock := strings.CutPrefix(l.b.Key(e.Subject), lockKey(""))
		if e.Gone() {
			return LockChange{core.Lock{Job: name}, e.Time}, isLock, nil
		}
		lock, err := l.decode(e)
		return LockChange{lock, e.Time}, isLock && err == nil, nil
	})
}

// change decodes the headers of a record. It returns false if the key is not a slot key.
func (l *Ledger) change(e wire.Entry) (Change, bool) {
	slot, err := job.ParseSlotKey(l.b.Key(e.Subject))
	if err != nil {
		return Change{}, false
	}
	c := Change{Slot: slot, Revision: e.Revision, Time: e.Time, Gone: e.Gone(), Node: e.Header.Get(HeaderOwner)}
	if state := job.State(e.Header.Get(HeaderState)); state.Final() || state == job.Waiting || state == job.Running || state == job.Retrying {
		c.State = state
	}
	c.RetryAt, _ = time.Parse(time.RFC3339Nano, e.Header.Get(HeaderRetryAt))
	return c, true
}
