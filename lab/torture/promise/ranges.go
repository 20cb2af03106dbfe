package promise

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// SpreadRanges replaces the record of each range of missed slots by one for each expected slot that
// the range covers: those between its ends without a record of their own. It returns the ranges
// that lie in no plan of their job.
func SpreadRanges(records map[job.Slot]LedgerWrite, expected map[job.Slot]bool) (strange []LedgerWrite) {
	for r, w := range records {
		if !r.Range {
			continue
		}
		delete(records, r)
		slots := between(r, w.Record.Last, expected)
		if len(slots) == 0 {
			strange = append(strange, w)
		}
		for _, s := range slots {
			if _, own := records[s]; !own {
				records[s] = w.of(s)
			}
		}
	}
	return strange
}

// of returns the write of a range as that of one of its slots.
func (w LedgerWrite) of(s job.Slot) LedgerWrite {
	w.Slot, w.Record.Slot = s, s
	return w
}

// between returns the expected slots from the first of a range to its last.
func between(r job.Slot, last time.Time, expected map[job.Slot]bool) (slots []job.Slot) {
	for s := range expected {
		if s.Job == r.Job && s.Token == "" && s.Shards == 0 && !s.At.Before(r.At) && !s.At.After(last) {
			slots = append(slots, s)
		}
	}
	return slots
}

// spreadRanges does for the whole history what SpreadRanges does for the records at its end.
func (c *checker) spreadRanges() {
	own := map[job.Slot]bool{}
	for s := range c.h.Records {
		own[s] = true
	}
	c.h.Records = maps.Clone(c.h.Records)
	for _, w := range SpreadRanges(c.h.Records, c.expected) {
		c.bad("unexpected", w.Slot, []string{"ledger: " + w.String()}, "it is a range of slots that no plan of its job has")
	}
	var ledger []LedgerWrite
	for _, w := range c.h.Ledger {
		if !w.Slot.Range {
			ledger = append(ledger, w)
			continue
		}
		for _, s := range between(w.Slot, w.Record.Last, c.expected) {
			if !own[s] {
				ledger = append(ledger, w.of(s))
			}
		}
	}
	var slots []SlotWrite
	for _, w := range c.h.Slots {
		if !w.Message.Slot.Range {
			slots = append(slots, w)
			continue
		}
		c.checkRangeID(w)
		for _, s := range between(w.Message.Slot, w.Message.MissedLast, c.expected) {
			if !own[s] {
				w.Message.Slot, w.ID = s, s.ID()
				slots = append(slots, w)
			}
		}
	}
	c.h.Ledger, c.h.Slots = ledger, slots
}

// checkRangeID checks that the message ID of a range names its ends, so that the stream drops copies,
// and keeps a range with other ends.
func (c *checker) checkRangeID(w SlotWrite) {
	if id := w.Message.Slot.ID() + "/" + w.Message.MissedLast.UTC().Format(time.RFC3339); w.ID != id && !strings.HasPrefix(w.ID, id+"/r") {
		c.bad("message ID", w.Message.Slot, []string{fmt.Sprintf("message %d at %s has ID %q", w.Seq, Stamp(w.Time), w.ID)}, "its message ID is not %q", id)
	}
}
