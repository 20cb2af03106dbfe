// Package stream publishes, lists and receives the slots of a namespace: those to run
// (Slots), and triggered runs that are not due yet (Timers). A timer is a message that
// the server schedules. Its subject is its name, so two triggers with the same key share
// one timer.
package stream

import (
	"context"
	"iter"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
)

// Store is the two streams that hold the slots of a namespace: those to run, and the
// timers. It is safe for concurrent use.
type Store struct {
	*space.Space
	headers *headers    // of slots
	group   *wire.Group // of publications of slots; nil: each is sent at once
}

// New returns the streams of a namespace.
func New(s *space.Space) *Store {
	store := &Store{Space: s, headers: newHeaders(s.SlotStream())}
	if s.Atomic(s.SlotStream()) {
		store.group = wire.NewGroup(s.Wire)
	}
	return store
}

// Slots returns the stream of slots to run.
func (s *Store) Slots() *Slots { return &Slots{s} }

// Timers returns the triggered runs that are not due yet.
func (s *Store) Timers() *Timers { return &Timers{s} }

// Waiting iterates over the timers, then the fired timers, then the stream of slots. Its
// errors are those of Slots.Waiting.
func (s *Store) Waiting(ctx context.Context, f WaitingFilter) iter.Seq2[WaitingSlot, error] {
	return func(yield func(WaitingSlot, error) bool) {
		for _, pass := range []iter.Seq2[WaitingSlot, error]{s.Timers().Waiting(ctx, f), s.Slots().Waiting(ctx, f)} {
			for w, err := range pass {
				if !yield(w, err) {
					return
				}
			}
		}
	}
}
