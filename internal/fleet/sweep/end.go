package sweep

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Seen is the newest write of the ledger that a process knows. If that write is gone, the
// ledger was purged, or restored from an older copy. It is safe for concurrent use.
type Seen struct {
	mu   sync.Mutex
	slot job.Slot
	mark exchange.LedgerMark // without its slot
}

// Note notes that the slot's record was written at this revision and time.
func (s *Seen) Note(slot job.Slot, revision uint64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.mark.Revision {
		s.slot, s.mark = slot, exchange.LedgerMark{Revision: revision, Time: at}
	}
}

// newest returns the newest write, or zero values if none is known.
func (s *Seen) newest() (job.Slot, exchange.LedgerMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark.Revision == 0 {
		return job.Slot{}, exchange.LedgerMark{}
	}
	mark := s.mark
	mark.Slot = s.slot.ID()
	return s.slot, mark
}

// adopt notes the newest write that another node has seen. If the ledger was rewound, adopt first
// forgets what was seen before that.
func (s *Seen) adopt(end exchange.SweepEnd) {
	s.mu.Lock()
	if !end.Rewound.IsZero() && !s.mark.Time.After(end.Rewound.Time) {
		s.mark = exchange.LedgerMark{}
	}
	s.mu.Unlock()
	if slot, err := job.ParseSlotID(end.Newest.Slot); err == nil {
		s.Note(slot, end.Newest.Revision, end.Newest.Time)
	}
}

func (s *Seen) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = exchange.LedgerMark{}
}

// lastEnd returns what the last complete pass has stored. If nothing is stored, or the stored value
// cannot be read, only Revision and Time are set.
func (s *Sweeper) lastEnd(ctx context.Context) (kv.SweepEnd, error) {
	end, err := s.cfg.Ends.Read(ctx)
	if errors.Is(err, job.ErrNotFound) || exchange.IsUnreadable(err) {
		err = nil
	}
	if err != nil {
		return end, fmt.Errorf("read when the last sweep ended: %w", err)
	}
	s.cfg.Seen.adopt(end.SweepEnd)
	return end, nil
}

// standsIn reports whether this node makes a pass although so many producers are ahead of it: no
// pass was completed for too long, or this node made the last complete one.
func (s *Sweeper) standsIn(last kv.SweepEnd, ahead int) bool {
	if last.Node == s.cfg.Node {
		return true
	}
	since := last.Time
	if s.began.After(since) {
		since = s.began
	}
	return !s.denied && s.cfg.Now().Sub(since).Abs() > time.Duration(min(ahead, maxAhead))*overdue
}

// storeEnd replaces the stored end of the last pass with the end of this one.
func (s *Sweeper) storeEnd(ctx context.Context, last kv.SweepEnd) error {
	end := s.end
	end.Node, end.Rewound, end.Extra = s.cfg.Node, last.Rewound, last.Extra
	_, end.Newest = s.cfg.Seen.newest()
	for _, slot := range slices.SortedFunc(maps.Keys(s.unreadable), func(a, b job.Slot) int { return cmp.Compare(a.ID(), b.ID()) }) {
		end.Skip("record of "+slot.ID(), s.unreadable[slot])
	}
	if n := len(end.Skipped) + end.More; n > 0 {
		s.cfg.Logger.Warn("sweep skipped what it cannot read", "count", n, "first", end.Skipped[0].What, "error", end.Skipped[0].Why, "list_all", "cronce doctor")
	}
	_, err := s.store(ctx, end, last.Revision)
	return err
}

// store writes the end of a sweep at revision, and reports whether it was stored. It returns no
// error if the login may not write it, or if another node has written it first.
func (s *Sweeper) store(ctx context.Context, end exchange.SweepEnd, revision uint64) (stored bool, err error) {
	end.Nonce = rand.Text()
	_, err = s.cfg.Ends.Write(ctx, end, revision)
	switch {
	case errors.Is(err, job.ErrConflict):
		return false, nil
	case errors.Is(err, job.ErrDenied):
		if !s.denied {
			s.denied = true
			s.cfg.Logger.Warn("the end of a sweep cannot be stored: the login has the permissions of an older version", "error", err, "fix", "cronce auth producer")
		}
		return false, nil
	}
	return err == nil, err
}

// checkRewound checks that the ledger still has the newest write that was seen, or a later one of the
// same slot. If not, the ledger has lost writes: attempts and fences of the slots since then may go
// back. One node of the fleet reports that, once.
func (s *Sweeper) checkRewound(ctx context.Context, last *kv.SweepEnd) error {
	slot, mark := s.cfg.Seen.newest()
	if mark.Revision == 0 || s.cfg.Now().Sub(mark.Time) > s.cfg.Horizon {
		return nil // the ledger may have deleted the record because of its age
	}
	_, found, err := s.cfg.Ledger.Read(ctx, slot)
	switch {
	case err != nil && !errors.Is(err, job.ErrNotFound) && !exchange.IsUnreadable(err):
		return err
	case found >= mark.Revision:
		return nil
	}
	next := last.SweepEnd
	next.Newest, next.Rewound = exchange.LedgerMark{}, exchange.Rewound{Time: s.cfg.Now().UTC(), Lost: mark, Found: found}
	stored, err := s.store(ctx, next, last.Revision)
	if err != nil || !stored && !s.denied {
		return err // another node reports it, or this one at its next turn
	}
	s.cfg.Seen.forget()
	why := fmt.Sprintf("the ledger went back: the record of %s was at revision %d and is now at %d (0: it does not exist): was the ledger purged, or restored from an older copy?", mark.Slot, mark.Revision, found)
	s.cfg.Logger.Error("the ledger has lost writes: attempts and fences of slots may go back, and slots that had run may run again", "slot", mark.Slot, "revision", mark.Revision, "found", found)
	s.cfg.Rewound(job.Event{Kind: job.EventAlert, Node: s.cfg.Node, Fence: mark.Revision, Error: why})
	if now, err := s.lastEnd(ctx); err == nil {
		*last = now
	}
	return nil
}
