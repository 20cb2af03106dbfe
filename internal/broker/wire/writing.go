package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Writing is one revision-checked write in flight. Its question stays open until the result is
// certain or the context ends; the package comment states the invariants. The answer to the first
// copy settles most writes. Nothing uses the message after that, so its header and body are reused.
// Allocating them for each write was a third of a slot's allocations.
type Writing struct {
	Question
	Bucket
	key      string
	Title    string // for errors; if empty, the bucket's key
	At, To   string // the value's subject in its stream, and the subject it is sent to
	header   nats.Header
	values   [5]string // of the header; each is the backing array of one slice
	Data     []byte
	revision uint64
	began    time.Time
	done     func(uint64, error)

	answers int                         // number of answers received
	lastErr error                       // error of the last answer
	doubt   bool                        // an answer left open whether its copy is stored, or may yet be
	pause   *backoff.ExponentialBackOff // before a copy that follows an answer
	Absent  func(done func(error))      // checks whether the stream exists; nil: it is taken to exist
}

// Writing returns a write of key at revision, without a value yet. The write calls done once, with
// its result.
func (b Bucket) Writing(ctx context.Context, key string, revision uint64, done func(uint64, error)) *Writing {
	w, ok := b.Transport.writings.Get().(*Writing)
	if !ok {
		w = &Writing{header: nats.Header{}}
		w.Asker = w
	}
	w.ctx, w.Question.FailDenied = ctx, b.FailDenied
	w.Bucket, w.key, w.revision, w.began, w.done = b, key, revision, time.Now(), done
	return w
}

// Set adds a header.
func (w *Writing) Set(name, value string) {
	n := len(w.header)
	if n >= len(w.values) {
		w.header[name] = []string{value}
		return
	}
	w.values[n] = value
	w.header[name] = w.values[n : n+1 : n+1]
}

// SendValue sends a value that contains the nonce. failed is the error of encoding the value. If
// failed is not nil, or nonce is empty, SendValue sends nothing and reports an error.
func (w *Writing) SendValue(data []byte, nonce string, failed error) {
	if w.PrepareValue(data, nonce, failed) {
		w.sendFirst()
	}
}

// PrepareValue builds the message of a value. If the value cannot be sent, it reports the
// error and returns false.
func (w *Writing) PrepareValue(data []byte, nonce string, failed error) bool {
	w.Data = data
	switch {
	case nonce == "":
		w.finish(0, fmt.Errorf("%w value for %s: it has no nonce, which distinguishes it from the values of other writers", job.ErrInvalid, w.what()))
	case failed != nil:
		w.finish(0, fmt.Errorf("encode %s: %w", w.what(), failed))
	default:
		return w.prepare()
	}
	return false
}

// Send sends the message.
func (w *Writing) Send() {
	if w.prepare() {
		w.sendFirst()
	}
}

// sendFirst sends the first copy, through the bucket's group if it has one.
func (w *Writing) sendFirst() {
	if w.Group != nil {
		w.Group.Send(w)
		return
	}
	w.Transport.Ask(&w.Question)
}

// prepare completes the message. If the message has no valid subject, it reports the error
// and returns false.
func (w *Writing) prepare() bool {
	if err := w.address(); err != nil {
		w.finish(0, err)
		return false
	}
	w.Set(jetstream.ExpectedStreamHeader, w.Stream)
	w.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(w.revision, 10))
	return true
}

// address sets the subject, unless the caller of Writing has set it.
func (w *Writing) address() error {
	if w.To != "" {
		return nil
	}
	// The client does not prefix a raw publication. Over a leaf node, or from another
	// account, the subject without the prefix does not reach the stream.
	w.At = w.Bucket.Subject(w.key)
	if w.To = w.At; w.Prefix != defaultPrefix {
		w.To = w.Prefix + w.At
	}
	return w.check(w.key)
}

func (w *Writing) Subject() string { return w.To }

func (w *Writing) Compose(m *nats.Msg) { m.Subject, m.Header, m.Data = w.To, w.header, w.Data }

// Answer handles the answer to one of the copies.
func (w *Writing) Answer(m *nats.Msg, err error) {
	if m == nil {
		w.unanswered(err)
		return
	}
	w.answers++
	won, err := w.stored(w.To, m)
	switch {
	case err == nil:
		w.won(won)
	case Classify(err) == conflict:
		w.resolveConflict(err)
	case Classify(err) == refused:
		w.endRefused(err)
	case w.Absent != nil && errors.Is(err, jetstream.ErrNoStreamResponse):
		w.Leave()
		w.Transport.hold(&w.Question)
		w.Absent(func(gone error) {
			switch {
			case !w.Transport.end(&w.Question):
			case gone != nil:
				w.endRefused(gone)
			default:
				w.sendAgain()
			}
		})
	default:
		w.doubt, w.lastErr = true, err
		w.sendAgain()
	}
}

// won reports the revision. If the broker has answered the only copy, nothing uses the
// message any more, and won recycles it.
func (w *Writing) won(revision uint64) {
	done, round, pool := w.done, w.round, &w.Transport.writings
	if w.Free() && w.pause == nil {
		clear(w.header)
		w.ctx, w.done, w.Absent, w.round = nil, nil, nil, nil
		w.Title, w.At, w.To, w.Data = "", "", "", w.Data[:0]
		w.answers, w.doubt, w.lastErr = 0, false, nil
		pool.Put(w)
	}
	done(revision, nil)
	if round != nil {
		round.countAnswers(1)
	}
}

// finish reports the result of the write.
func (w *Writing) finish(revision uint64, err error) {
	w.done(revision, err)
	w.Leave()
}

func (w *Writing) Size() int { return len(w.Data) }

// Stored settles a write whose batch was stored.
func (w *Writing) Stored(revision uint64) { w.finish(revision, nil) }

// Unstored sends a write by itself after its batch.
func (w *Writing) Unstored(err error, _ bool) {
	if !isStoredNowhere(err) {
		w.doubt, w.lastErr = true, err
	}
	w.Transport.Ask(&w.Question)
}

// unanswered ends a write that will get no answer.
func (w *Writing) unanswered(err error) {
	switch {
	case errors.Is(err, job.ErrDenied):
		w.finish(0, fmt.Errorf("write %s at revision %d: %w", w.what(), w.revision, err))
	case Classify(err) == refused:
		w.endRefused(err)
	default:
		if w.lastErr != nil {
			err = fmt.Errorf("%w; the last answer: %w", err, w.lastErr)
		}
		w.finish(0, w.failed(errDoubt, err))
	}
}

// endRefused ends a write after a copy was refused. If another copy may be stored, the result is
// job.ErrUnknown.
func (w *Writing) endRefused(err error) {
	if w.doubt || w.copies > w.answers {
		w.finish(0, w.failed(errDoubt, err))
		return
	}
	w.finish(0, fmt.Errorf("write %s at revision %d: %w", w.what(), w.revision, err))
}

// what returns the name of the key in errors.
func (w *Writing) what() string {
	if w.Title != "" {
		return w.Title
	}
	return w.Name + "/" + w.key
}

// errDoubt is job.ErrUnknown for a write.
var errDoubt = fmt.Errorf("%w: it may have happened", job.ErrUnknown)

// failed wraps err with the sentinel and what was written.
func (w *Writing) failed(sentinel, err error) error {
	return fmt.Errorf("write %s at revision %d: %w (after %v): %w", w.what(), w.revision, sentinel, time.Since(w.began).Round(time.Millisecond), err)
}

// sendAgain sends another copy after a pause.
func (w *Writing) sendAgain() {
	w.Leave()
	if w.pause == nil {
		w.pause = NewBackoff()
	}
	w.Transport.reopen(&w.Question, w.pause.NextBackOff())
}

// resolveConflict finds out which write caused the conflict of a copy. Meanwhile, the answer to
// another copy may settle the write.
func (w *Writing) resolveConflict(cause error) {
	w.Leave()
	if w.pause == nil {
		w.pause = NewBackoff()
	}
	w.Transport.hold(&w.Question)
	go func() { // Last waits for its answer
		stored, err := w.Last(w.ctx, w.Stream, w.At)
		won, settled := w.verdict(stored, err, cause)
		switch {
		case !w.Transport.end(&w.Question): // settled, or its context ended
		case settled && won > 0:
			w.won(won)
		case settled:
			w.finish(0, w.failed(job.ErrConflict, cause))
		default:
			w.sendAgain()
		}
	}()
}

// verdict decides from the entry that is stored now. A login that may use only direct gets has read
// it from any replica, which may be stale. But a replica shows only what was stored, and revisions
// only grow. So a larger revision there proves the same as at the leader.
//   - settled, with a revision: an earlier copy of this write is stored there.
//   - settled, without a revision: another writer's value is stored, or the value was removed.
//   - not settled: the entry does not explain the conflict. The read was stale, or the conflicting
//     write was not stored in the end.
func (w *Writing) verdict(stored Entry, err, cause error) (won uint64, settled bool) {
	switch {
	case errors.Is(err, ErrNothing):
		// The value was removed, unless the conflict was with a write still in flight, or the replica
		// of a direct get does not have the value yet.
		return 0, w.revision > 0 && !w.readsDirectly(w.Stream) && HasCode(cause, jetstream.JSErrCodeStreamWrongLastSequence)
	case err != nil, stored.Revision <= w.revision:
		return 0, false
	case stored.same(w.header, w.Data):
		return stored.Revision, true
	}
	return 0, true
}
