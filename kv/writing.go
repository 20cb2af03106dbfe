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

// writing is a won write under way: one question that is open until it is certain what
// became of it, or its context ends. doc.go argues why that is sound. Most are settled by
// the answer to their first copy; then nothing looks at the message any more, and its
// header and body are used again: to make them anew was a third of what a slot had to
// allocate.
type writing struct {
	question
	bucket
	key      string
	title    string // in errors; empty: that of the bucket's key
	at, to   string // the subject that the value has in its stream, and where it is sent
	header   nats.Header
	values   [5]string // of the header, a slice of one each
	data     []byte
	revision uint64
	began    time.Time
	told     func(uint64, error)

	answers int                         // that came
	met     error                       // why, as the last of them had it
	doubt   bool                        // an answer left open whether its copy is stored, or may yet be
	pause   *backoff.ExponentialBackOff // before a copy that follows an answer
	absent  func(told func(error))      // asks whether the stream is there; nil: it is
}

// writing is an empty message to a key, to be sent at revision. told is given what is
// certain, once.
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

// set adds one of the headers.
func (w *writing) set(name, value string) {
	n := len(w.header)
	if n >= len(w.values) {
		w.header[name] = []string{value}
		return
	}
	w.values[n] = value
	w.header[name] = w.values[n : n+1 : n+1]
}

// sendValue sends a value that carries the nonce, unless it has none, or could not be
// encoded.
func (w *writing) sendValue(data []byte, nonce string, failed error) {
	if w.prepareValue(data, nonce, failed) {
		w.transport.ask(&w.question)
	}
}

// prepareValue makes the message of a value. It returns false, and reports the error, if
// the value cannot be sent.
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

// prepare completes the message. It returns false, and reports the error, if the message
// has no subject.
func (w *writing) prepare() bool {
	if err := w.address(); err != nil {
		w.told(0, err)
		return false
	}
	w.set(jetstream.ExpectedStreamHeader, w.stream())
	w.set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(w.revision, 10))
	return true
}

// address finds the subject, unless there is one.
func (w *writing) address() error {
	if w.to != "" {
		return nil
	}
	// A raw publish is not prefixed by the client; over a leaf node, or from
	// another account, the bare subject leads nowhere.
	w.at = w.bucket.subject(w.key)
	if w.to = w.at; w.prefix != defaultPrefix {
		w.to = w.prefix + w.at
	}
	return w.check(w.key)
}

func (w *writing) subject() string { return w.to }

func (w *writing) compose(m *nats.Msg) { m.Subject, m.Header, m.Data = w.to, w.header, w.data }

// answer takes what was answered to one of the copies.
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

// won tells the revision. A message of which the broker has seen one copy, and answered
// it, is nobody's any more.
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

// unanswered ends a write for which no answer will come.
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

// refused ends a write of which a copy was not carried out. Another copy may have been.
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

// judge finds out whose write stands where a copy of ours met a conflict. The answer to
// another copy may settle the write meanwhile.
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

// verdict says what follows from what stands there. Settled with a revision: our own
// write, an earlier copy of it. Settled without one: another writer's. Not settled: what
// could be read explains no conflict, so that the reading was stale, or the write that we
// collided with came to nothing.
func (w *writing) verdict(stands entry, err, met error) (won uint64, settled bool) {
	switch {
	case errors.Is(err, errNothing):
		// Gone, if the conflict was not with a write that is still under way.
		return 0, w.revision > 0 && hasCode(met, jetstream.JSErrCodeStreamWrongLastSequence)
	case err != nil, stands.revision <= w.revision:
		return 0, false
	case stands.same(w.header, w.data):
		return stands.revision, true
	}
	return 0, true
}
