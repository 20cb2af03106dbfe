package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/link"
	"github.com/cronce-io/cronce/job"
)

const (
	// changesAtOnce is the number of changes in one pull request. changesWait is the request's
	// timeout, which is reached only if the broker is slow, or if records expired after the broker
	// counted them. After changesIdle without a request, the broker removes the consumer of an
	// abandoned iteration.
	changesAtOnce = 5000
	changesWait   = 10 * time.Second
	changesIdle   = 30 * time.Second
)

// Cursor is a reader's position in the messages of a stream, such as the writes of a bucket.
// The zero value is the beginning. If the stream was created again, or restored from an older
// copy, a sequence stands for another message than before, and the reader starts over. The
// reader detects a restored stream by a last sequence below the cursor. So it misses a restored
// stream that has kept its creation time and has already grown past the cursor.
type Cursor struct {
	next    uint64
	created time.Time // when the stream was created; zero before the first read

	// stored is the newest time at which a message is known to have been stored. A restored stream
	// still has old messages, which the reader has read. So After reads such a stream only from the
	// time since on, which is right after stored. Changes reads all of it.
	stored, since time.Time
}

// CursorAfter returns the position after the message with that sequence, in the stream as it is
// now.
func CursorAfter(sequence uint64) Cursor { return Cursor{next: sequence + 1} }

// resume sets the cursor to the beginning if it was made for another stream; see Cursor.
func (at *Cursor) resume(info *jetstream.StreamInfo, stored time.Time) {
	switch {
	case at.next == 0 || !at.created.IsZero() && !info.Created.Equal(at.created):
		*at = Cursor{next: 1}
	case info.State.LastSeq < at.next-1:
		*at = Cursor{next: 1, stored: at.stored}
		if !at.stored.IsZero() {
			at.since = at.stored.Add(1)
		}
	}
	at.created = info.Created
	at.passed(stored)
}

// passed records that a message was stored at that time.
func (at *Cursor) passed(stored time.Time) {
	if stored.After(at.stored) {
		at.stored = stored
	}
}

// After iterates over the stream's messages after the cursor that match filter (empty: all), and
// advances the cursor. It is like All otherwise. If the stream does not exist any more, After waits
// until it is created again. If it did not exist at the first read, After yields the error.
func (w Wire) After(ctx context.Context, stream, filter string, at *Cursor) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for pause := NewBackoff(); ; {
			info, err := w.StreamInfo(ctx, "look at stream "+stream, stream)
			if err == nil {
				at.resume(info, w.Stamped(info.State.LastTime))
				break
			}
			if at.created.IsZero() || !isAbsent(err) || !Wait(ctx, pause.NextBackOff()) {
				yield(Entry{}, err)
				return
			}
		}
		for found, err := range w.BatchesFrom(ctx, stream, filter, at.next, at.since) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range found {
				at.next, at.since = e.Revision+1, time.Time{}
				at.passed(e.Time)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// isAbsent reports whether the broker has no such stream, or no JetStream. A starting broker has no
// JetStream for a moment. A broker that lost its files has no stream until the namespace is set up
// again.
func isAbsent(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) ||
		HasCode(err, jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount)
}

// Changes iterates over the last writes of the bucket's keys after the cursor, and
// advances it.
func (b Bucket) Changes(ctx context.Context, at *Cursor, headersOnly bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		failed := func(err error) { yield(Entry{}, fmt.Errorf("follow %s: %w", b.Name, err)) }
		info, err := b.info(ctx)
		if err != nil {
			failed(err)
			return
		}
		at.resume(info, b.Stamped(info.State.LastTime))
		c, err := b.follow(ctx, jetstream.ConsumerConfig{OptStartSeq: at.next, HeadersOnly: headersOnly, InactiveThreshold: changesIdle})
		if err != nil {
			failed(err)
			return
		}
		defer func() {
			forget, cancel := context.WithTimeout(context.WithoutCancel(ctx), AttemptTimeout)
			defer cancel()
			link.Aside(func() { _ = b.JS.DeleteConsumer(forget, b.Stream, c.CachedInfo().Name) }) // if this fails, the broker removes the consumer after changesIdle
		}()
		var received uint64
		for left := c.CachedInfo().NumPending; left > 0; {
			goOn := true
			left, err = b.pull(ctx, c, &received, int(min(left, changesAtOnce)), func(e Entry) bool {
				at.next = e.Revision + 1
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

// pull requests up to n changes, passes them to found while found returns true, and returns how
// many are left. Fewer may arrive than the broker counted, because records expire meanwhile.
//
// The broker sends no change again. So received counts those of this consumer, and pull returns an
// error if one was sent and has not arrived, for example because the connection was lost. The next
// iteration begins with it.
func (b Bucket) pull(ctx context.Context, c jetstream.Consumer, received *uint64, n int, found func(Entry) bool) (left uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, changesWait)
	defer cancel()
	batch, err := Fetch(ctx, c, n, jetstream.FetchMaxBytes(b.PullBytes()))
	if err != nil {
		return 0, err
	}
	arrived := 0
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return 0, err
		}
		if meta.Sequence.Consumer != *received+1 {
			return 0, fmt.Errorf("%w: delivery %d came after %d", job.ErrUnknown, meta.Sequence.Consumer, *received)
		}
		*received++
		arrived, left = arrived+1, meta.NumPending
		if !found(Entry{m.Subject(), meta.Sequence.Stream, b.Stamped(meta.Timestamp), m.Headers(), m.Data()}) {
			return 0, nil
		}
	}
	if arrived > 0 {
		return left, nil
	}
	info, err := c.Info(context.WithoutCancel(ctx))
	if err == nil && (info.NumPending > 0 || info.Delivered.Consumer > *received) {
		err = fmt.Errorf("%w: %w", job.ErrUnknown, cmp.Or(batch.Error(), context.DeadlineExceeded))
	}
	return 0, err
}
