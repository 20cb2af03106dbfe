package sweep

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/job"
)

// remains names a stranded message: one that the server does not deliver any more. sequence
// is its place in the stream of slots, or in that of timers.
type remains struct {
	timers   bool
	sequence uint64
}

// strandedMessage may be the only message of its slot.
type strandedMessage struct {
	stream.WaitingSlot
	remains remains
}

// maxStranded bounds the stranded messages of one pass, which keeps their payloads.
const maxStranded = 1000

// isSuspect reports whether a stranded message has to be looked at: it is old enough that no
// worker has it, and its slot is not known to have ended. Messages of slots that have ended
// are harmless, and no node may remove them.
func (s *Sweeper) isSuspect(it remains, w stream.WaitingSlot) bool {
	return !s.remains[it] && s.age(w.Published) > stallAfter
}

// offerStranded publishes the stranded message of a slot again if the slot has no record: the
// message is then all that is stored of the slot, and may have the payload of a triggered run. If
// the slot has a record, suspects finds it.
func (s *Sweeper) offerStranded(ctx context.Context, stranded []strandedMessage, waits map[job.Slot]bool) error {
	for _, w := range stranded {
		if waits[w.Slot] {
			continue
		}
		rec, _, err := s.cfg.Ledger.Read(ctx, w.Slot)
		switch {
		case errors.Is(err, job.ErrNotFound):
			err = s.sendAs(ctx, w.Queue, w.Message, w.Payload, "", offerOf(w.Sequence))
		case err == nil && rec.State.Final():
			s.remains[w.remains] = true
		}
		if err := s.skip(ctx, w.Slot, err); err != nil {
			return err
		}
	}
	return nil
}
