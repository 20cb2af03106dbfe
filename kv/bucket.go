package kv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
)

// bucket is one KV bucket: the stream KV_<name> with a subject per key.
type bucket struct {
	wire
	name string
	in   string // its stream
	root string // of its subjects, with the last dot

	// tellDenied has a write end when the server does not permit it. Without it
	// such a write is repeated like any that goes unanswered.
	tellDenied bool
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

// read asks the stream's leader for the key's value until it is answered or ctx
// ends. Nothing there is ErrNotFound, with the revision of the marker that
// stands there, or 0.
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

// write stores value under key at revision.
func (b bucket) write(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return b.send(ctx, key, &nats.Msg{Data: value}, revision)
}

// remove puts a marker where the key's value stands at revision.
func (b bucket) remove(ctx context.Context, key string, revision uint64) error {
	marker := &nats.Msg{Header: nats.Header{headerOperation: {"DEL"}, headerNonce: {rand.Text()}}}
	_, err := b.send(ctx, key, marker, revision)
	return err
}

func (b bucket) send(ctx context.Context, key string, m *nats.Msg, revision uint64) (uint64, error) {
	if err := b.address(key, m); err != nil {
		return 0, err
	}
	return write(ctx, keyAsker{b, key}, b.name+"/"+key, m, revision)
}

// address puts the key's subject on a message.
func (b bucket) address(key string, m *nats.Msg) error {
	// A raw publish is not prefixed by the client; over a leaf node, or from
	// another account, the bare subject leads nowhere.
	m.Subject = b.subject(key)
	if b.prefix != defaultPrefix {
		m.Subject = b.prefix + m.Subject
	}
	return b.check(key)
}

// keyAsker asks the broker about one key.
type keyAsker struct {
	bucket
	key string
}

func (k keyAsker) put(ctx context.Context, m *nats.Msg, revision uint64) (uint64, error) {
	won, err := k.publish(ctx, k.stream(), m, revision)
	return won, k.explain(m, err)
}

// explain adds to why a copy of m was not stored what the server complained about. Of
// those who do not want to be told none is denied: they ask again.
func (k keyAsker) explain(m *nats.Msg, err error) error {
	if err != nil && (k.tellDenied || !k.denied(m.Subject, err)) {
		return k.because(m.Subject, err)
	}
	return err
}

func (k keyAsker) get(ctx context.Context) (entry, error) {
	return k.last(ctx, k.stream(), k.subject(k.key))
}

// all passes over the stream's messages that match filter (empty: all), in the
// stream's order, markers included, once, and as of the time when each batch is
// read. since leaves out what was written before it. It stops at the first error.
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

// batches is all, as the broker sends it.
func (w wire) batches(ctx context.Context, stream, filter string, since time.Time) iter.Seq2[[]entry, error] {
	return func(yield func([]entry, error) bool) {
		from, pause := uint64(1), newPause()
		var young time.Time // what is older is left out here, and not by the broker
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
