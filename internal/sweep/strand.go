package sweep

import (
	"context"
	"errors"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// remains is a message that the server gives to nobody any more, by its place in the
// stream of slots or in that of timers.
type remains struct {
	timers   bool
	sequence uint64
}

// stranded offers again the slots without a record whose message is there, but is
// given to nobody any more: that message says all that there is to say, of a
// triggered run its payload too. Slots with a record are found by that. What is left
// of slots that have ended is harmless, and nobody may remove it.
func (s *Sweeper) stranded(ctx context.Context) error {
	lost := map[string][]kv.WaitingSlot{}
	for i, messages := range []Messages{s.cfg.Slots, s.cfg.Timers} {
		for w, err := range messages.Waiting(ctx, kv.WaitingFilter{Fired: true, Stranded: true}) {
			it := remains{i == 1, w.Sequence}
			switch {
			case errors.Is(err, job.ErrInvalid) || s.remains[it] || s.cfg.Now().Sub(w.Published) <= patience:
				continue
			case err != nil:
				return err
			case !w.Stranded:
				continue
			}
			switch rec, _, err := s.cfg.Ledger.Read(ctx, w.Slot); {
			case errors.Is(err, job.ErrNotFound):
				lost[w.Slot.Job] = append(lost[w.Slot.Job], w)
			case err != nil:
				return err
			case rec.State.Final():
				s.remains[it] = true
			}
		}
	}
	for name, all := range lost {
		waiting, err := s.waiting(ctx, kv.WaitingFilter{Job: name, Fired: true})
		if err != nil {
			return err
		}
		for _, w := range all {
			if waiting[w.Slot] {
				continue
			}
			if err := s.sendAs(ctx, w.Queue, w.Message, w.Payload, "", offerOf(w.Sequence)); err != nil {
				return err
			}
		}
	}
	return nil
}
