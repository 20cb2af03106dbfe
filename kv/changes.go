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

// Headers of a record: enough to see without its body whether it should have
// moved.
const (
	HeaderState   = "Cronce-State"
	HeaderOwner   = "Cronce-Owner"
	HeaderRetryAt = "Cronce-Retry-At"
)

// recordHeader sets what stands in front of a record.
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

	// Gone says that the record was removed.
	Gone bool

	// State is empty when the writer did not say it.
	State job.State

	// Node is the owner while running, RetryAt the next attempt's time while
	// retrying.
	Node    string
	RetryAt time.Time
}

const (
	// changesAtOnce is how many changes are asked for at a time, changesWait how
	// long for, changesIdle how long the broker keeps the place of a pass that
	// nobody goes on with.
	changesAtOnce = 5000
	changesWait   = 2 * time.Second
	changesIdle   = 30 * time.Second
)

// Cursor is how far a reader has come in the writes of a bucket. Its zero value is
// the beginning. One that was removed and made again, or restored from an older
// copy, is read from its beginning: its revisions say something else now. (A copy
// that has already been written past the cursor when it is looked at is not told
// from the one before, unless it was made anew.)
type Cursor struct {
	next    uint64
	created time.Time // of the bucket
}

// Changes passes over the last writes of all slots that at has not passed yet, in
// their order, as of the time when the pass began, and moves it. Only headers are
// read. Like List it is a hint; it stops at the first error.
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

// Changes is as that of the ledger, of the locks. One that cannot be read is left
// out.
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

// changes passes over the last writes of the bucket's keys from the cursor on, and
// moves it.
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
			aside(func() { _ = b.js.DeleteConsumer(forget, b.stream(), c.CachedInfo().Name) }) // else the broker does
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

// resume puts the cursor at the beginning if the bucket is not the one that it was
// in.
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

// some hands on the next n changes while found wants them, and says how many are
// left. There may be fewer than were counted: records expire meanwhile.
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

// repeat asks a question until it is answered or ctx ends.
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

// change reads the headers of a record; false for a key that is none of ours.
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
