package sweep

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// remains is a message that the server delivers no more, by its place in the stream
// of slots or in that of timers.
type remains struct {
	timers   bool
	sequence uint64
}

// strandedMessage is such a message. It may be the only one of its slot.
type strandedMessage struct {
	kv.WaitingSlot
	remains remains
}

// maxStranded bounds how many of them one pass sees to: it keeps their payloads.
const maxStranded = 1000

// lies reports whether a stranded message is worth a look: it is old enough that no
// worker has it in hand, and its slot is not known to have ended. What is left of slots
// that have ended is harmless, and no node may remove it.
func (s *Sweeper) lies(it remains, w kv.WaitingSlot) bool {
	return !s.remains[it] && s.age(w.Published) > patience
}

// offerStranded offers again the slots without a record whose only message the server
// delivers no more: that message says all that there is to say, of a triggered run its
// payload too. Slots with a record are found by that.
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
