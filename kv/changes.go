package kv

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Headers of a record. They let a reader decide without the body whether the slot is
// overdue for a change.
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

const (
	// changesAtOnce is the number of changes in one pull request, and changesWait is the
	// request's timeout. After changesIdle without a request, the broker removes the
	// consumer of an abandoned pass.
	changesAtOnce = 5000
	changesWait   = 2 * time.Second
	changesIdle   = 30 * time.Second
)

// Cursor is a reader's position in the writes of a bucket. The zero value is the
// beginning. If the bucket was created anew, or restored from an older copy, its
// revisions have other meanings, and the reader starts over. It notices a restored bucket
// by a last revision below the cursor, so it misses a restored bucket that has already
// grown past the cursor and kept its creation time.
type Cursor struct {
	next    uint64
	created time.Time // when the bucket was created
}

// Changes iterates over the last writes of all slots after the cursor, in stream order,
// as of the time when the pass began, and advances the cursor. It reads only headers.
// Like List it is a hint. It stops at the first error.
func (l *Ledger) Changes(ctx context.Context, at *Cursor) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for e, err := range l.b.changes(ctx, at, true) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if change, ok := l.change(e); ok && !yield(change, nil) {
				return
			}
		}
	}
}

// LockChange is the last write of one job's lock.
type LockChange struct {
	core.Lock

	// Time is the broker's timestamp.
	Time time.Time
}

// Changes is like Ledger.Changes, for the locks. It leaves out locks that it cannot read.
func (l *Locks) Changes(ctx context.Context, at *Cursor) iter.Seq2[LockChange, error] {
	return func(yield func(LockChange, error) bool) {
		b := l.b
		for e, err := range b.changes(ctx, at, false) {
			if err != nil {
				yield(LockChange{}, err)
				return
			}
			name, is := strings.CutPrefix(b.key(e.subject), lockKey(""))
			if !is {
				continue
			}
			lock, err := l.decode(e)
			if e.gone() {
				lock, err = core.Lock{Job: name}, nil
			}
			if err == nil && !yield(LockChange{lock, e.time}, nil) {
				return
			}
		}
	}
}

// changes iterates over the last writes of the bucket's keys after the cursor, and
// advances it.
func (b bucket) changes(ctx context.Context, at *Cursor, headersOnly bool) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		failed := func(err error) { yield(entry{}, fmt.Errorf("follow %s: %w", b.name, err)) }
		if err := b.resume(ctx, at); err != nil {
			failed(err)
			return
		}
		c, err := b.follow(ctx, at.next, headersOnly)
		if err != nil {
			failed(err)
			return
		}
		defer func() {
			forget, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
			defer cancel()
			aside(func() { _ = b.js.DeleteConsumer(forget, b.stream(), c.CachedInfo().Name) }) // if this fails, the broker removes the consumer after changesIdle
		}()
		for left := c.CachedInfo().NumPending; left > 0; {
			goOn := true
			left, err = b.some(ctx, c, int(min(left, changesAtOnce)), func(e entry) bool {
				at.next = e.revision + 1
				goOn = yield(e, nil)
				return goOn
			})
			if err != nil {
				failed(err)
			}
			if err != nil || !goOn {
				return
			}
		}
	}
}

// resume resets the cursor to the beginning if the bucket is not the one that the cursor
// was made for.
func (b bucket) resume(ctx context.Context, at *Cursor) error {
	var info *jetstream.StreamInfo
	err := repeat(ctx, func(ctx context.Context) error {
		stream, err := b.js.Stream(ctx, b.stream())
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	if err == nil && (at.next == 0 || !info.Created.Equal(at.created) || info.State.LastSeq < at.next-1) {
		*at = Cursor{next: 1, created: info.Created}
	}
	return err
}

// some passes up to n changes to found while found returns true, and returns how many are
// left. Fewer may arrive than the broker counted, because records expire meanwhile.
func (b bucket) some(ctx context.Context, c jetstream.Consumer, n int, found func(entry) bool) (left uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, changesWait)
	defer cancel()
	batch, err := fetch(ctx, c, n)
	if err != nil {
		return 0, err
	}
	came := 0
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return 0, err
		}
		came, left = came+1, meta.NumPending
		if !found(entry{m.Subject(), meta.Sequence.Stream, b.stamped(meta.Timestamp), m.Headers(), m.Data()}) {
			return 0, nil
		}
	}
	if came > 0 {
		return left, nil
	}
	info, err := c.Info(context.WithoutCancel(ctx))
	if err == nil && info.NumPending > 0 {
		err = fmt.Errorf("%w: %w", job.ErrUnknown, cmp.Or(batch.Error(), context.DeadlineExceeded))
	}
	return 0, err
}

func (b bucket) follow(ctx context.Context, from uint64, headersOnly bool) (c jetstream.Consumer, err error) {
	err = repeat(ctx, func(ctx context.Context) error {
		c, err = b.js.CreateConsumer(ctx, b.stream(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
			HeadersOnly: headersOnly, MemoryStorage: true, Replicas: 1, InactiveThreshold: changesIdle,
		})
		return err
	})
	return c, err
}

// repeat calls ask until it is answered or ctx ends.
func repeat(ctx context.Context, ask func(context.Context) error) error {
	pause := newPause()
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := ask(attempt)
		cancel()
		if err == nil || classify(err) != unanswered || !wait(ctx, pause.NextBackOff()) {
			return err
		}
	}
}

// change decodes the headers of a record. It returns false if the key is not a slot key.
func (l *Ledger) change(e entry) (Change, bool) {
	slot, err := job.ParseSlotKey(l.b.key(e.subject))
	if err != nil {
		return Change{}, false
	}
	c := Change{Slot: slot, Revision: e.revision, Time: e.time, Gone: e.gone(), Node: e.header.Get(HeaderOwner)}
	if state := job.State(e.header.Get(HeaderState)); state.Final() || state == job.Running || state == job.Retrying {
		c.State = state
	}
	c.RetryAt, _ = time.Parse(time.RFC3339Nano, e.header.Get(HeaderRetryAt))
	return c, true
}
