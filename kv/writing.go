package kv

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

// writing is one revision-checked write in flight. Its question stays open until the result
// is certain or the context ends; doc.go argues why that is sound. Most writes are settled
// by the answer to their first copy. Nothing uses the message after that, so its header and
// body are reused. Allocating them for each write was a third of a slot's allocations.
type writing struct {
	question
	bucket
	key      string
	title    string // for errors; if empty, the bucket's key
	at, to   string // the value's subject in its stream, and the subject it is sent to
	header   nats.Header
	values   [5]string // of the header; each is the backing array of one slice
	data     []byte
	revision uint64
	began    time.Time
	told     func(uint64, error)

	answers int                         // number of answers received
	met     error                       // error of the last answer
	doubt   bool                        // an answer left open whether its copy is stored, or may yet be
	pause   *backoff.ExponentialBackOff // before a copy that follows an answer
	absent  func(told func(error))      // checks whether the stream exists; nil: it does
}

// writing returns an empty message for a key, to be sent at revision. It calls told once,
// with the certain result.
func (b bucket) writing(ctx context.Context, key string, revision uint64, told func(uint64, error)) *writing {
	w, ok := b.transport.writings.Get().(*writing)
	if !ok {
		w = &writing{header: nats.Header{}}
		w.asker = w
	}
	w.ctx, w.question.endsDenied = ctx, b.tellDenied
	w.bucket, w.key, w.revision, w.began, w.told = b, key, revision, time.Now(), told
	return w
}

// set adds a header.
func (w *writing) set(name, value string) {
	n := len(w.header)
	if n >= len(w.values) {
		w.header[name] = []string{value}
		return
	}
	w.values[n] = value
	w.header[name] = w.values[n : n+1 : n+1]
}

// sendValue sends a value that contains the nonce. If nonce is empty, or failed reports that
// the value could not be encoded, it reports an error instead.
func (w *writing) sendValue(data []byte, nonce string, failed error) {
	if w.prepareValue(data, nonce, failed) {
		w.transport.ask(&w.question)
	}
}

// prepareValue builds the message of a value. If the value cannot be sent, it reports the
// error and returns false.
func (w *writing) prepareValue(data []byte, nonce string, failed error) bool {
	w.data = data
	switch {
	case nonce == "":
		w.told(0, fmt.Errorf("%w value for %s: it has no nonce, so that its writer could not tell it from another's", job.ErrInvalid, w.what()))
	case failed != nil:
		w.told(0, fmt.Errorf("encode %s: %w", w.what(), failed))
	default:
		return w.prepare()
	}
	return false
}

// send sends the message.
func (w *writing) send() {
	if w.prepare() {
		w.transport.ask(&w.question)
	}
}

// prepare completes the message. If the message has no valid subject, it reports the error
// and returns false.
func (w *writing) prepare() bool {
	if err := w.address(); err != nil {
		w.told(0, err)
		return false
	}
	w.set(jetstream.ExpectedStreamHeader, w.stream())
	w.set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(w.revision, 10))
	return true
}

// address sets the subject unless it is set.
func (w *writing) address() error {
	if w.to != "" {
		return nil
	}
	// The client does not prefix a raw publication. Over a leaf node, or from another
	// account, the subject without the prefix does not reach the stream.
	w.at = w.bucket.subject(w.key)
	if w.to = w.at; w.prefix != defaultPrefix {
		w.to = w.prefix + w.at
	}
	return w.check(w.key)
}

func (w *writing) subject() string { return w.to }

func (w *writing) compose(m *nats.Msg) { m.Subject, m.Header, m.Data = w.to, w.header, w.data }

// answer handles the answer to one of the copies.
func (w *writing) answer(m *nats.Msg, err error) {
	if m == nil {
		w.unanswered(err)
		return
	}
	w.answers++
	won, err := w.stored(w.to, m)
	switch {
	case err == nil:
		w.won(won)
	case classify(err) == conflict:
		w.judge(err)
	case classify(err) == refused:
		w.refused(err)
	case w.absent != nil && errors.Is(err, jetstream.ErrNoStreamResponse):
		w.transport.hold(&w.question)
		w.absent(func(gone error) {
			switch {
			case !w.transport.take(&w.question):
			case gone != nil:
				w.refused(gone)
			default:
				w.further()
			}
		})
	default:
		w.doubt, w.met = true, err
		w.further()
	}
}

// won reports the revision. If the broker has answered the only copy, nothing uses the
// message any more, and won recycles it.
func (w *writing) won(revision uint64) {
	told, pool := w.told, &w.transport.writings
	if w.free() && w.pause == nil {
		clear(w.header)
		w.ctx, w.told, w.absent = nil, nil, nil
		w.title, w.at, w.to, w.data = "", "", "", w.data[:0]
		w.answers, w.doubt, w.met = 0, false, nil
		pool.Put(w)
	}
	told(revision, nil)
}

// unanswered ends a write that will get no answer.
func (w *writing) unanswered(err error) {
	switch {
	case errors.Is(err, job.ErrDenied):
		w.told(0, fmt.Errorf("write %s at revision %d: %w", w.what(), w.revision, err))
	case classify(err) == refused:
		w.refused(err)
	default:
		if w.met != nil {
			err = fmt.Errorf("%w; the last answer: %w", err, w.met)
		}
		w.told(0, w.failed(job.ErrUnknown, err))
	}
}

// refused ends a write after a copy was refused. Another copy may be stored.
func (w *writing) refused(err error) {
	if w.doubt || w.copies > w.answers {
		w.told(0, w.failed(job.ErrUnknown, err))
		return
	}
	w.told(0, fmt.Errorf("write %s at revision %d: %w", w.what(), w.revision, err))
}

// what names the key in errors.
func (w *writing) what() string {
	if w.title != "" {
		return w.title
	}
	return w.name + "/" + w.key
}

func (w *writing) failed(sentinel, err error) error {
	return fmt.Errorf("write %s at revision %d: %w (after %v): %w", w.what(), w.revision, sentinel, time.Since(w.began).Round(time.Millisecond), err)
}

// further sends another copy after a pause.
func (w *writing) further() {
	if w.pause == nil {
		w.pause = newPause()
	}
	w.transport.again(&w.question, w.pause.NextBackOff())
}

// judge finds out which write caused the conflict that a copy met. Meanwhile, the answer to
// another copy may settle the write.
func (w *writing) judge(met error) {
	if w.pause == nil {
		w.pause = newPause()
	}
	w.transport.hold(&w.question)
	w.look(w.ctx, w.stream(), w.at, func(stands entry, err error) {
		won, settled := w.verdict(stands, err, met)
		switch {
		case !w.transport.take(&w.question): // settled, or its context ended
		case settled && won > 0:
			w.won(won)
		case settled:
			w.told(0, w.failed(job.ErrConflict, met))
		default:
			w.further()
		}
	})
}

// verdict decides from the stored entry. Settled with a revision: an earlier copy of this
// write is stored. Settled without one: another writer's value is stored. Not settled: the
// entry does not explain the conflict, so the read was stale, or the write that conflicted
// was not stored in the end.
func (w *writing) verdict(stands entry, err, met error) (won uint64, settled bool) {
	switch {
	case errors.Is(err, errNothing):
		// The value is gone, unless the conflict was with a write still in flight.
		return 0, w.revision > 0 && hasCode(met, jetstream.JSErrCodeStreamWrongLastSequence)
	case err != nil, stands.revision <= w.revision:
		return 0, false
	case stands.same(w.header, w.data):
		return stands.revision, true
	}
	return 0, true
}
