package sweep

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// remains names a stranded message: one that the server does not deliver any more. sequence
// is its place in the stream of slots, or in that of timers.
type remains struct {
	timers   bool
	sequence uint64
}

// strandedMessage may be the only message of its slot.
type strandedMessage struct {
	kv.WaitingSlot
	remains remains
}

// maxStranded bounds the stranded messages of one pass, which keeps their payloads.
const maxStranded = 1000

// isSuspect reports whether a stranded message has to be looked at: it is old enough that no
// worker has it, and its slot is not known to have ended. Messages of slots that have ended
// are harmless, and no node may remove them.
func (s *Sweeper) isSuspect(it remains, w kv.WaitingSlot) bool {
	return !s.remains[it] && s.age(w.Published) > patience
}

// offerStranded publishes the stranded messages of slots without a record anew: such a
// message says all that is known of the slot, and has the payload of a triggered run. Slots
// with a record are found by that.
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
