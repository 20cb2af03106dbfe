package kv

import (
	"context"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
)

// Options select the namespace to open and how to open it.
type Options = space.Options

// Store is one namespace on the broker. A Store and its parts are safe for concurrent use. It
// needs no closing: its goroutines end with the connection.
type Store struct {
	*stream.Store
	ledger, locks *wire.Group // group the writes of records, and those of locks
}

func newStore(s *space.Space) *Store {
	return &Store{Store: stream.New(s), ledger: wire.NewGroup(s.Wire), locks: wire.NewGroup(s.Wire)}
}

// Open opens the namespace, and creates it if it does not exist. See space.Open for how
// it compares what exists.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	s, err := space.Open(ctx, js, o)
	if err != nil {
		return nil, err
	}
	return newStore(s), nil
}

// Examine inspects a namespace and changes nothing; see space.Examine. If the survey is
// Complete, the store can be used for reading.
func Examine(ctx context.Context, js jetstream.JetStream, o Options) (*Store, space.Survey, error) {
	return examined(space.Examine(ctx, js, o))
}

// Examine is the function Examine for the namespace of an open store. It adds nothing to the
// connection that stays until the connection is closed.
func (s *Store) Examine(ctx context.Context) (*Store, space.Survey, error) {
	return examined(s.Space.Examine(ctx))
}

func examined(s *space.Space, survey space.Survey, err error) (*Store, space.Survey, error) {
	if err != nil {
		return nil, survey, err
	}
	return newStore(s), survey, nil
}

// ForOperator returns the same store for an operator: a write that the server does not
// permit fails at once with job.ErrDenied. A node's store repeats such a write of a record, a
// lock, a timer or the watermark, because the permissions of a running node may be corrected.
func (s *Store) ForOperator() *Store { return newStore(s.WithFailDenied()) }

// bucketFailingDenied returns a bucket of the namespace. Each write to it that the server does
// not permit fails at once with job.ErrDenied, for a node too.
func (s *Store) bucketFailingDenied(what string) wire.Bucket { return s.WithFailDenied().Bucket(what) }

// Ledger returns the store of slot records.
func (s *Store) Ledger() *Ledger {
	b := s.Bucket("ledger").Grouped(s.ledger)
	b.Title = recordTitle
	return &Ledger{b}
}

// Jobs returns the registry.
func (s *Store) Jobs() *Jobs { return &Jobs{s.Space, s.bucketFailingDenied("jobs")} }

// Nodes returns the store of node records.
func (s *Store) Nodes() *Nodes { return &Nodes{s.Space, s.bucketFailingDenied("nodes")} }

// Watermark returns the store of the watermark.
func (s *Store) Watermark() *Watermark { return &Watermark{s.Bucket("state")} }

// Locks returns the store of the jobs' locks.
func (s *Store) Locks() *Locks { return &Locks{s.Bucket("state").Grouped(s.locks)} }

// read reads a key from the stream's leader, and decodes its value. The revision is known even if
// there is no value, or none that can be decoded.
func read[T any](ctx context.Context, b wire.Bucket, key string, decode func(wire.Entry) (T, error)) (v T, revision uint64, err error) {
	e, err := b.Read(ctx, key)
	if err == nil {
		v, err = decode(e)
	}
	return v, e.Revision, err
}

// decodeEach decodes the entries of a pass, and leaves out those for which keep is false. It yields
// the errors of decode and goes on. An error of the pass is its last element.
func decodeEach[T any](entries iter.Seq2[wire.Entry, error], decode func(wire.Entry) (v T, keep bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for e, err := range entries {
			var v T
			keep := true
			if err == nil {
				v, keep, err = decode(e)
			}
			if keep && !yield(v, err) {
				return
			}
		}
	}
}

// Announcements returns the subject on which producers announce to each other how far they have
// published.
func (s *Store) Announcements() *Announcements { return &Announcements{s.Space} }
