package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// bucket is one KV bucket: the stream KV_<name> with a subject per key.
type bucket struct {
	wire
	name string
	in   string // its stream
	root string // prefix of its subjects, with the final dot

	// tellDenied ends a write with job.ErrDenied if the server does not permit it. If it
	// is false, the write is repeated like any unanswered write.
	tellDenied bool

	// atomic is true if the stream allows atomic batches.
	atomic bool
}

func (s *Store) bucket(what string) bucket {
	name := s.namespace + "_" + what
	return bucket{wire: s.wire, name: name, in: "KV_" + name, root: "$KV." + name + ".", tellDenied: s.readOnly}
}

func (b bucket) stream() string            { return b.in }
func (b bucket) subject(key string) string { return b.root + key }
func (b bucket) key(subject string) string { return strings.TrimPrefix(subject, b.root) }

func (b bucket) check(key string) error {
	if isKey(key) {
		return nil
	}
	return fmt.Errorf("%w key %q of bucket %s: want letters, digits and - / _ = with single dots between", job.ErrInvalid, key, b.name)
}

// isKey reports whether key is [-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*.
func isKey(key string) bool {
	last := byte('.')
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '/', c == '_', c == '=':
		case c == '.' && last != '.':
		default:
			return false
		}
		last = c
	}
	return last != '.'
}

// read asks the stream's leader for the key's value until it is answered or ctx ends. If
// the key has no value, the error wraps job.ErrNotFound and the entry has the revision of
// the delete marker, or 0.
func (b bucket) read(ctx context.Context, key string) (entry, error) {
	if err := b.check(key); err != nil {
		return entry{}, err
	}
	began, pause := time.Now(), newPause()
	for {
		e, err := b.last(ctx, b.stream(), b.subject(key))
		switch {
		case err == nil && !e.gone():
			return e, nil
		case err == nil, errors.Is(err, errNothing):
			return entry{revision: e.revision}, fmt.Errorf("%s/%s: %w", b.name, key, job.ErrNotFound)
		case classify(err) != unanswered, errors.Is(err, job.ErrDenied):
			return entry{}, fmt.Errorf("read %s/%s: %w", b.name, key, err)
		case !wait(ctx, pause.NextBackOff()):
			return entry{}, fmt.Errorf("read %s/%s: %w (after %v): %w", b.name, key, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
	}
}

// write stores value under key if revision is the key's last one.
func (b bucket) write(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return await(func(told func(uint64, error)) {
		w := b.writing(ctx, key, revision, told)
		w.data = append(w.data, value...)
		w.send()
	})
}

// remove stores a delete marker under key if revision is the key's last one.
func (b bucket) remove(ctx context.Context, key string, revision uint64) error {
	_, err := await(func(told func(uint64, error)) {
		w := b.writing(ctx, key, revision, told)
		w.set(headerOperation, "DEL")
		w.set(headerNonce, rand.Text())
		w.send()
	})
	return err
}

// encode writes a value that contains its own nonce.
func (b bucket) encode(ctx context.Context, key, nonce string, value json.Marshaler, revision uint64) (uint64, error) {
	return await(func(told func(uint64, error)) {
		data, err := value.MarshalJSON()
		b.writing(ctx, key, revision, told).sendValue(data, nonce, err)
	})
}

// await calls send, blocks until told is called, and returns its arguments. The transport
// always calls it, at the latest when the context ends.
func await(send func(told func(uint64, error))) (revision uint64, err error) {
	done := make(chan struct{})
	send(func(r uint64, e error) {
		revision, err = r, e
		close(done)
	})
	<-done
	return revision, err
}

// all iterates once over the stream's messages that match filter (empty: all), in stream
// order, delete markers included. Each batch shows the stream as of the time when it was
// read. Messages older than since are left out. The iteration stops at the first error.
func (w wire) all(ctx context.Context, stream, filter string, since time.Time) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for found, err := range w.batches(ctx, stream, filter, since) {
			if err != nil {
				yield(entry{}, err)
				return
			}
			for _, e := range found {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// batches is like all, in the batches that the broker sends.
func (w wire) batches(ctx context.Context, stream, filter string, since time.Time) iter.Seq2[[]entry, error] {
	return func(yield func([]entry, error) bool) {
		from, pause := uint64(1), newPause()
		var young time.Time // a cutoff that this client applies, instead of the broker
		if w.stamp != nil {
			young, since = since, time.Time{}
		}
		for {
			found, more, err := w.batch(ctx, stream, filter, from, since)
			if err != nil {
				if errors.Is(err, job.ErrDenied) {
					yield(nil, fmt.Errorf("list %s: %w", stream, err))
					return
				}
				if classify(err) == unanswered && wait(ctx, pause.NextBackOff()) {
					continue
				}
				yield(nil, fmt.Errorf("list %s: %w: %w", stream, job.ErrUnknown, err))
				return
			}
			pause.Reset()
			if len(found) == 0 {
				return
			}
			from, since = found[len(found)-1].revision+1, time.Time{}
			found = slices.DeleteFunc(found, func(e entry) bool { return e.time.Before(young) })
			if !yield(found, nil) || !more {
				return
			}
		}
	}
}
