package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

const (
	// changesAtOnce is the number of changes in one pull request, and changesWait is the
	// request's timeout. Only a slow broker needs it, and records that expire between the count
	// and the request. After changesIdle without a request, the broker removes the
	// consumer of an abandoned pass.
	changesAtOnce = 5000
	changesWait   = 10 * time.Second
	changesIdle   = 30 * time.Second
)

// Cursor is a reader's position in the writes of a bucket. The zero value is the
// beginning. If the bucket was created anew, or restored from an older copy, a revision
// stands for another write than before, and the reader starts over. The reader detects a
// restored bucket by a last revision below the cursor. So it misses a restored bucket that
// has kept its creation time and has already grown past the cursor.
type Cursor struct {
	next    uint64
	created time.Time // when the bucket was created
}

// Changes iterates over the last writes of the bucket's keys after the cursor, and
// advances it.
func (b Bucket) Changes(ctx context.Context, at *Cursor, headersOnly bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		failed := func(err error) { yield(Entry{}, fmt.Errorf("follow %s: %w", b.Name, err)) }
		if err := b.resume(ctx, at); err != nil {
			failed(err)
			return
		}
		c, err := b.createConsumer(ctx, at.next, headersOnly)
		if err != nil {
			failed(err)
			return
		}
		defer func() {
			forget, cancel := context.WithTimeout(context.WithoutCancel(ctx), AttemptTimeout)
			defer cancel()
			aside(func() { _ = b.JS.DeleteConsumer(forget, b.Stream(), c.CachedInfo().Name) }) // if this fails, the broker removes the consumer after changesIdle
		}()
		for left := c.CachedInfo().NumPending; left > 0; {
			goOn := true
			left, err = b.some(ctx, c, int(min(left, changesAtOnce)), func(e Entry) bool {
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

// resume resets the cursor to the beginning if the bucket is not the one that the cursor
// was made for.
func (b Bucket) resume(ctx context.Context, at *Cursor) error {
	var info *jetstream.StreamInfo
	err := repeat(ctx, func(ctx context.Context) error {
		stream, err := b.JS.Stream(ctx, b.Stream())
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
func (b Bucket) some(ctx context.Context, c jetstream.Consumer, n int, found func(Entry) bool) (left uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, changesWait)
	defer cancel()
	batch, err := Fetch(ctx, c, n)
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
		if !found(Entry{m.Subject(), meta.Sequence.Stream, b.Stamped(meta.Timestamp), m.Headers(), m.Data()}) {
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

func (b Bucket) createConsumer(ctx context.Context, from uint64, headersOnly bool) (c jetstream.Consumer, err error) {
	err = repeat(ctx, func(ctx context.Context) error {
		c, err = b.JS.CreateConsumer(ctx, b.Stream(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
			HeadersOnly: headersOnly, MemoryStorage: true, Replicas: 1, InactiveThreshold: changesIdle,
		})
		return err
	})
	return c, err
}

// OnAllCores returns f of each entry, in order.
func OnAllCores[T any](found []Entry, f func(Entry) T) []T {
	all := make([]T, len(found))
	var parts sync.WaitGroup
	size := max(1, (len(found)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(all, size) {
		entries := found[:len(part)]
		found = found[len(part):]
		parts.Go(func() {
			for i, e := range entries {
				part[i] = f(e)
			}
		})
	}
	parts.Wait()
	return all
}

// Ahead iterates over seq. It computes the next value while the caller uses the current one.
func Ahead[T any](ctx context.Context, seq func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type item struct {
			value T
			err   error
		}
		ctx, cancel := context.WithCancel(ctx)
		items, enough := make(chan item), make(chan struct{})
		go func() {
			defer close(items)
			for value, err := range seq(ctx) {
				select {
				case items <- item{value, err}:
				case <-enough: // ctx is not checked here: the caller must receive its error
					return
				}
			}
		}()
		defer func() {
			close(enough)
			cancel()
			for range items { // until the goroutine ends
			}
		}()
		for i := range items {
			if !yield(i.value, i.err) {
				return
			}
		}
	}
}

// The broker reads a stream only forward. Backward therefore reads windows of sequence
// numbers, each one before the previous one. Measured with a million keys, a tenth of whose
// messages was overwritten, so that the stream has gaps: one message by its sequence takes 30 us.
// A batch takes 2 ms if 10,000 keys match its filter and more than a second if all do, because
// the broker visits each such key to count what is pending. So Backward chooses:
//   - At first, and while many of the newest messages have the prefix: it reads each
//     message of a window with a request of its own.
//   - Then: it reads batches with a filter, from windows that grow.
//   - If few messages of the first such window match: it tries whether few keys have the
//     prefix, and then reads the last message of each; see Few.
const (
	firstWindow  = 64
	mostWindow   = 512
	denseShare   = 16 // a prefix is dense if at least one of denseShare sequences in a window has it
	sparseWindow = 4096
	sparseGrowth = 8
	sparseFound  = 16 // a window with fewer matches is followed by a larger one
)

// Backward iterates over the messages whose keys begin with prefix, which is empty or ends
// with a dot, in batches, newest first. The number of requests depends on how many messages
// the caller takes, and not on how many the bucket has. Delete markers are included. The
// newest messages may be missing. The iteration stops at the first error.
func (b Bucket) Backward(ctx context.Context, prefix string) iter.Seq2[[]Entry, error] {
	return func(yield func([]Entry, error) bool) {
		last, err := b.lastSequence(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		r := backward{b: b, prefix: b.Subject(prefix), all: prefix == "", end: last + 1, size: firstWindow}
		for r.end > 1 {
			found, err := r.step(ctx)
			slices.SortFunc(found, func(x, y Entry) int { return cmp.Compare(y.Revision, x.Revision) })
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// backward is a running Backward. Everything from the sequence end on has been read.
type backward struct {
	b      Bucket
	prefix string
	all    bool
	end    uint64
	size   uint64 // of the next window
	sparse bool   // the next window has a filter
	many   bool   // many keys have the prefix
}

// step reads the next window, and moves end to its beginning.
func (r *backward) step(ctx context.Context) (found []Entry, err error) {
	if !r.sparse {
		return r.near(ctx)
	}
	found, err = r.read(ctx, r.prefix+">")
	if err != nil || len(found) >= sparseFound {
		return found, err
	}
	r.size *= sparseGrowth
	if r.many {
		return found, nil
	}
	few, complete, err := r.b.Few(ctx, r.b.Stream(), r.prefix+">")
	if err == nil && complete {
		found = append(found, slices.DeleteFunc(few, func(e Entry) bool { return e.Revision >= r.end })...)
		r.end = 0
	}
	r.many = true // if Few failed, the read of the next window gets the same error and retries
	return found, nil
}

// near reads a window message by message.
func (r *backward) near(ctx context.Context) (found []Entry, err error) {
	begin, dense := r.end-min(r.size, r.end-1), r.size/denseShare
	err = r.b.untilAnswered(ctx, func() (err error) {
		found, err = r.b.messages(ctx, r.b.Stream(), begin, r.end)
		return err
	})
	r.end, r.size = begin, min(2*r.size, mostWindow)
	if err != nil || r.all {
		return found, err
	}
	found = slices.DeleteFunc(found, func(e Entry) bool { return !strings.HasPrefix(e.Subject, r.prefix) })
	if uint64(len(found)) < dense {
		r.sparse, r.size = true, sparseWindow
	}
	return found, nil
}

// read reads the messages of a window that match filter.
func (r *backward) read(ctx context.Context, filter string) (all []Entry, err error) {
	end, begin := r.end, uint64(1)
	if end > r.size {
		begin = end - r.size
	}
	r.end = begin
	for from := begin; from < end; {
		var found []Entry
		var more bool
		err := r.b.untilAnswered(ctx, func() (err error) {
			found, more, err = r.b.upTo(ctx, r.b.Stream(), filter, from, int(min(end-from, batchSize)))
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if e.Revision >= end {
				return all, nil
			}
			all = append(all, e)
			from = e.Revision + 1
		}
		if !more || len(found) == 0 {
			break
		}
	}
	return all, nil
}

// upTo is like batch, for at most n messages.
func (w Wire) upTo(ctx context.Context, stream, filter string, from uint64, n int) (_ []Entry, more bool, err error) {
	return w.Get(ctx, stream, map[string]any{"seq": from, "batch": n, "next_by_subj": filter})
}

// lastSequence asks the stream's leader for the sequence of its last message.
func (b Bucket) lastSequence(ctx context.Context) (uint64, error) {
	info, err := b.StreamInfo(ctx, "look for the end of "+b.Stream(), b.Stream())
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// untilAnswered repeats a read until it is answered or ctx ends.
func (b Bucket) untilAnswered(ctx context.Context, read func() error) error {
	for began, pause := time.Now(), NewPause(); ; {
		err := read()
		switch {
		case err == nil:
			return nil
		case Classify(err) != Unanswered, errors.Is(err, job.ErrDenied):
			return fmt.Errorf("read bucket %s: %w", b.Name, err)
		case !Wait(ctx, pause.NextBackOff()):
			return fmt.Errorf("read bucket %s: %w (after %v): %w", b.Name, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
	}
}
