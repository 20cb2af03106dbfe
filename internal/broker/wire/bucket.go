package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Bucket is one KV bucket: the stream KV_<name> with a subject for each key.
type Bucket struct {
	Wire
	Name   string
	Stream string
	Root   string // prefix of its subjects, with the final dot

	// Title names a value in errors of reading it. Nil: the bucket's name and the key name it.
	Title func(key string) string

	// FailDenied ends a write with job.ErrDenied if the server does not permit it. If it
	// is false, the write is repeated like any unanswered write.
	FailDenied bool

	// Atomic is true if the stream allows atomic batches.
	Atomic bool

	// Group sends the writes of the bucket. If it is nil, each is sent at once.
	Group *Group
}

// Grouped returns the bucket with a group for its writes, if its stream allows batches.
func (b Bucket) Grouped(g *Group) Bucket {
	if b.Atomic {
		b.Group = g
	}
	return b
}

// Subject returns the subject of a key, and Key the key of a subject.
func (b Bucket) Subject(key string) string { return b.Root + key }
func (b Bucket) Key(subject string) string { return strings.TrimPrefix(subject, b.Root) }

// check returns an error if the key is not valid.
func (b Bucket) check(key string) error {
	if isKey(key) {
		return nil
	}
	return fmt.Errorf("%w key %q of bucket %s: want letters, digits and - / _ = with single dots between", job.ErrInvalid, key, b.Name)
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

func (b Bucket) title(key string) string {
	if b.Title != nil {
		return b.Title(key)
	}
	return b.Name + "/" + key
}

// Read asks the stream's leader for the key's value until it is answered or ctx ends. If
// the key has no value, the error wraps job.ErrNotFound and the entry has the revision of
// the delete marker, or 0.
func (b Bucket) Read(ctx context.Context, key string) (Entry, error) {
	if err := b.check(key); err != nil {
		return Entry{}, err
	}
	e, err := b.LastUntilAnswered(ctx, b.title(key), b.Stream, b.Subject(key))
	if err == nil && e.Gone() || errors.Is(err, ErrNothing) {
		return Entry{Revision: e.Revision}, fmt.Errorf("%s: %w", b.title(key), job.ErrNotFound)
	}
	return e, err
}

// Write stores value under key if revision is the key's last one.
func (b Bucket) Write(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return Await(func(done func(uint64, error)) {
		w := b.Writing(ctx, key, revision, done)
		w.Data = append(w.Data, value...)
		w.Send()
	})
}

// Remove stores a delete marker under key if revision is the key's last one.
func (b Bucket) Remove(ctx context.Context, key string, revision uint64) error {
	_, err := Await(func(done func(uint64, error)) {
		w := b.Writing(ctx, key, revision, done)
		w.Set(headerOperation, "DEL")
		w.Set(HeaderNonce, rand.Text())
		w.Send()
	})
	return err
}

// info returns the description of the bucket's stream by its leader.
func (b Bucket) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	return b.StreamInfo(ctx, "look at bucket "+b.Name, b.Stream)
}

// follow creates a temporary consumer of the bucket's messages from cfg.OptStartSeq on.
func (b Bucket) follow(ctx context.Context, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	cfg.DeliverPolicy, cfg.AckPolicy, cfg.MemoryStorage, cfg.Replicas = jetstream.DeliverByStartSequencePolicy, jetstream.AckNonePolicy, true, 1
	var c jetstream.Consumer // after an error, a request that Ask abandoned may still write it
	err := b.Ask(ctx, "create a consumer of bucket "+b.Name, b.API("CONSUMER.CREATE."+b.Stream), func(ctx context.Context) (err error) {
		c, err = b.JS.CreateConsumer(ctx, b.Stream, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// WriteValue is Write for a value that contains its own nonce.
func (b Bucket) WriteValue(ctx context.Context, key, nonce string, value json.Marshaler, revision uint64) (uint64, error) {
	return Await(func(done func(uint64, error)) {
		data, err := value.MarshalJSON()
		b.Writing(ctx, key, revision, done).SendValue(data, nonce, err)
	})
}

// Await calls send, blocks until done is called, and returns the arguments of done. The transport
// always calls done, at the latest when the context ends.
func Await[T any](send func(done func(T, error))) (result T, err error) {
	done := make(chan struct{})
	send(func(r T, e error) {
		result, err = r, e
		close(done)
	})
	<-done
	return result, err
}

// All iterates once over the stream's messages that match filter (empty: all), in stream
// order, delete markers included. Each batch shows the stream as of the time when it was
// read. Messages older than since are left out. The iteration stops at the first error.
func (w Wire) All(ctx context.Context, stream, filter string, since time.Time) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for found, err := range w.Batches(ctx, stream, filter, since) {
			if err != nil {
				yield(Entry{}, err)
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

// Batches is like All, but yields the batches that the broker sends.
func (w Wire) Batches(ctx context.Context, stream, filter string, since time.Time) iter.Seq2[[]Entry, error] {
	return w.BatchesFrom(ctx, stream, filter, 1, since)
}

// BatchesFrom is like Batches, but begins at the sequence from.
func (w Wire) BatchesFrom(ctx context.Context, stream, filter string, from uint64, since time.Time) iter.Seq2[[]Entry, error] {
	return func(yield func([]Entry, error) bool) {
		from, pause := from, NewBackoff()
		var young time.Time // since, if Stamp is set: the broker does not know the converted times, so this client applies it
		if w.Stamp != nil {
			young, since = since, time.Time{}
		}
		for {
			found, more, err := w.batch(ctx, stream, filter, from, since)
			if err != nil {
				if errors.Is(err, job.ErrDenied) {
					yield(nil, fmt.Errorf("list %s: %w", stream, err))
					return
				}
				if Classify(err) == Unanswered && Wait(ctx, pause.NextBackOff()) {
					continue
				}
				yield(nil, fmt.Errorf("list %s: %w: %w", stream, job.ErrUnknown, err))
				return
			}
			pause.Reset()
			if len(found) == 0 {
				return
			}
			from, since = found[len(found)-1].Revision+1, time.Time{}
			found = slices.DeleteFunc(found, func(e Entry) bool { return e.Time.Before(young) })
			if !yield(found, nil) || !more {
				return
			}
		}
	}
}

// Limits of one request of EachLatest. The server still answers a request with latestAtOnce
// keys. A request of about latestBytes fits a server whose max_payload is 32 KiB. For a server that
// accepts less, EachLatest asks for fewer keys at once.
const (
	latestAtOnce = 1000
	latestBytes  = 24 << 10
)

// EachLatest reads the last messages of n keys, many keys with one request. It calls each with the
// messages that exist.
func (b Bucket) EachLatest(ctx context.Context, n int, key func(i int) string, each func([]Entry)) error {
	for i := 0; i < n; {
		var keys []string
		most := latestBytes
		if room := b.Room(); room > 0 { // what HeaderRoom leaves free is enough for one key beyond it
			most = min(most, room)
		}
		for size := 0; i < n && len(keys) < latestAtOnce && size < most; i++ {
			keys = append(keys, key(i))
			size += len(b.Subject(keys[len(keys)-1])) + len(`"",`)
		}
		found, err := b.Latest(ctx, keys)
		if err != nil {
			return err
		}
		each(found)
	}
	return nil
}

// Latest asks any replica for the last message of each key until it is answered or ctx
// ends.
func (b Bucket) Latest(ctx context.Context, keys []string) (found []Entry, err error) {
	err = b.orDirect(b.Stream, func() (err error) {
		found, err = b.latest(ctx, keys)
		return err
	}, func() (err error) {
		found, err = b.latestDirect(ctx, keys)
		return err
	})
	return found, err
}

func (b Bucket) latest(ctx context.Context, keys []string) (found []Entry, err error) {
	missing := make(map[string]bool, len(keys))
	for _, key := range keys {
		if err := b.check(key); err != nil {
			return nil, err
		}
		missing[b.Subject(key)] = true
	}
	for len(missing) > 0 {
		subjects := slices.Collect(maps.Keys(missing))
		var part []Entry
		var more bool
		err := b.UntilAnswered(ctx, "bucket "+b.Name, func() (err error) {
			part, more, err = b.Get(ctx, b.Stream, map[string]any{"multi_last": subjects})
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, e := range part {
			delete(missing, e.Subject)
		}
		found = append(found, part...)
		if !more || len(part) == 0 {
			break
		}
	}
	return found, nil
}
