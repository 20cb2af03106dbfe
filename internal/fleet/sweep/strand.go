package sweep

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// strandedKey names a stranded message: one that the server does not deliver any more. sequence
// is its sequence number, in the stream of slots if slots is true, and else in the stream of
// timers.
type strandedKey struct {
	slots    bool
	sequence uint64
}

// isAfter reports whether listMessages lists the message after that with the key k. All are after the
// zero value.
func (s strandedKey) isAfter(k strandedKey) bool {
	if s.slots != k.slots {
		return s.slots
	}
	return s.sequence > k.sequence
}

// strandedMessage may be the only message of its slot.
type strandedMessage struct {
	stream.WaitingSlot
	key strandedKey
}

// maxStranded bounds the stranded messages of one pass, which keeps their payloads. The passes of a round
// look at all messages in turn: for those of a queue without workers, or of slots that retry much later,
// a pass can do nothing. A pass with room left ends the round.
const maxStranded = 1000

// offerStranded publishes the stranded message of a slot again if the slot has no record: the
// message is then all that is stored of the slot, and may have the payload of a triggered run. If
// the slot has a record, suspects finds it.
func (s *Sweeper) offerStranded(ctx context.Context, stranded []strandedMessage, hasMessage map[job.Slot]bool) error {
	for _, w := range stranded {
		if hasMessage[w.Slot] {
			continue
		}
		if err := s.skipIfBad(ctx, w.Slot, s.offerUnclaimed(ctx, w)); err != nil {
			return err
		}
	}
	s.strandedAt = strandedKey{}
	if len(stranded) == maxStranded {
		s.strandedAt = stranded[maxStranded-1].key
	}
	return nil
}

// offerUnclaimed publishes a stranded message again if its slot has no record.
func (s *Sweeper) offerUnclaimed(ctx context.Context, w strandedMessage) error {
	rec, _, err := s.cfg.Ledger.Read(ctx, w.Slot)
	switch {
	case errors.Is(err, job.ErrNotFound):
		return s.sendAs(ctx, w.Queue, w.Message, w.Payload, "", core.OfferOf(w.Sequence))
	case err == nil && rec.State.Final():
		s.leftovers[w.key] = true
	}
	return err
}
