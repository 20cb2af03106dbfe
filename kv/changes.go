package kv

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers of a record: enough to see without its body whether it should have
// moved.
const (
	HeaderState   = "Cronce-State"
	HeaderOwner   = "Cronce-Owner"
	HeaderRetryAt = "Cronce-Retry-At"
)

// recordHeader is what stands in front of a record.
func recordHeader(r job.Record) nats.Header {
	h := nats.Header{HeaderState: {string(r.State)}}
	if r.State == job.Running {
		h[HeaderOwner] = []string{r.Node}
	}
	if !r.RetryAt.IsZero() {
		h[HeaderRetryAt] = []string{r.RetryAt.UTC().Format(time.RFC3339Nano)}
	}
	return h
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

// Changes passes over the last writes of all slots whose revision is from or
// later, in their order, as of the time when the pass began. Only headers are read. Like List it is
// a hint; it stops at the first error.
func (l *Ledger) Changes(ctx context.Context, from uint64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		c, err := l.b.changes(ctx, max(from, 1))
		if err != nil {
			yield(Change{}, fmt.Errorf("follow %s: %w", l.b.name, err))
			return
		}
		defer func() {
			forget, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
			defer cancel()
			_ = l.b.js.DeleteConsumer(forget, l.b.stream(), c.CachedInfo().Name) // else the broker does
		}()
		for left := c.CachedInfo().NumPending; left > 0; {
			var goOn bool
			if left, goOn, err = l.some(ctx, c, int(min(left, changesAtOnce)), yield); err != nil {
				yield(Change{}, fmt.Errorf("follow %s: %w", l.b.name, err))
			}
			if err != nil || !goOn {
				return
			}
		}
	}
}

// some hands on the next n changes, and says how many are left. There may be fewer
// than were counted: records expire meanwhile.
func (l *Ledger) some(ctx context.Context, c jetstream.Consumer, n int, yield func(Change, error) bool) (left uint64, goOn bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, changesWait)
	defer cancel()
	batch, err := c.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return 0, false, err
	}
	came := 0
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return 0, false, err
		}
		came, left = came+1, meta.NumPending
		if change, ok := l.change(m, meta); ok && !yield(change, nil) {
			return 0, false, nil
		}
	}
	if came > 0 {
		return left, true, nil
	}
	info, err := c.Info(context.WithoutCancel(ctx))
	if err == nil && info.NumPending > 0 {
		err = fmt.Errorf("%w: %w", job.ErrUnknown, cmp.Or(batch.Error(), context.DeadlineExceeded))
	}
	return 0, true, err
}

func (b bucket) changes(ctx context.Context, from uint64) (c jetstream.Consumer, err error) {
	err = repeat(ctx, func(ctx context.Context) error {
		c, err = b.js.CreateConsumer(ctx, b.stream(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
			HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: changesIdle,
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
func (l *Ledger) change(m jetstream.Msg, meta *jetstream.MsgMetadata) (Change, bool) {
	slot, err := job.ParseSlotKey(l.b.key(m.Subject()))
	if err != nil {
		return Change{}, false
	}
	h := m.Headers()
	c := Change{
		Slot: slot, Revision: meta.Sequence.Stream, Time: l.b.stamped(meta.Timestamp), Gone: entry{header: h}.gone(),
		State: job.State(h.Get(HeaderState)), Node: h.Get(HeaderOwner),
	}
	c.RetryAt, _ = time.Parse(time.RFC3339Nano, h.Get(HeaderRetryAt))
	return c, true
}
