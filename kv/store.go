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

// Store is one namespace on the broker. A Store and its parts are safe for concurrent
// use. It owns no goroutine and needs no closing.
type Store struct {
	*space.Space
	slots         *stream.Store
	ledger, locks *wire.Group // group the writes of these two buckets
}

func newStore(s *space.Space) *Store {
	return &Store{Space: s, slots: stream.New(s), ledger: wire.NewGroup(s.Wire, wire.SlowWrite), locks: wire.NewGroup(s.Wire, wire.SlowWrite)}
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
	s, survey, err := space.Examine(ctx, js, o)
	if err != nil {
		return nil, survey, err
	}
	return newStore(s), survey, nil
}

// FailDenied returns the same store for an operator: a write that the server does not
// permit fails at once with job.ErrDenied. A node's store repeats such a write, because the
// permissions of a running node may be mended.
func (s *Store) FailDenied() *Store {
	return newStore(s.Space.WithFailDenied())
}

// Ledger returns the store of slot records.
func (s *Store) Ledger() *Ledger { return &Ledger{s.Bucket("ledger").Grouped(s.ledger)} }

// Jobs returns the registry.
func (s *Store) Jobs() *Jobs { return &Jobs{s.Space} }

// Nodes returns the store of node records.
func (s *Store) Nodes() *Nodes { return &Nodes{s.Space} }

// Watermark returns the store of the watermark.
func (s *Store) Watermark() *Watermark { return &Watermark{s.Bucket("state")} }

// Locks returns the store of the jobs' locks.
func (s *Store) Locks() *Locks { return &Locks{s.Space, s.Bucket("state").Grouped(s.locks)} }

// read reads a key from the stream's leader, and decodes its value. The revision is known even if
// there is no value, or none that can be decoded.
func read[T any](ctx context.Context, b wire.Bucket, key string, decode func(wire.Entry) (T, error)) (v T, revision uint64, err error) {
	e, err := b.Read(ctx, key)
	if err == nil {
		v, err = decode(e)
	}
	return v, e.Revision, err
}

// Slots returns the stream of slots to run.
func (s *Store) Slots() *stream.Slots { return s.slots.Slots() }

// Producers returns the channel through which producers announce slots to each other.
func (s *Store) Producers() *Producers { return &Producers{s.Space} }

// Timers returns the triggered runs that are not due yet.
func (s *Store) Timers() *stream.Timers { return s.slots.Timers() }

// Waiting iterates over the timers, then the fired timers, then the stream of slots. Its
// errors are those of Slots.Waiting.
func (s *Store) Waiting(ctx context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return s.slots.Waiting(ctx, f)
}
