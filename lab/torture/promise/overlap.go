package promise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// checkOverlaps checks that no more slots of a job run at once than its policy allows.
func (c *checker) checkOverlaps() {
	going := map[string][]*run{} // by job, in order of their starts
	for _, r := range c.all {
		most := c.cases[r.slot.Job].AtMost()
		if most == 0 || r.stop <= r.start {
			continue
		}
		beside := slices.DeleteFunc(going[r.slot.Job], func(o *run) bool { return o.stop <= r.start })
		going[r.slot.Job] = append(beside, r)
		others := map[job.Slot]*run{}
		for _, o := range beside {
			if o.slot.Whole() != r.slot.Whole() {
				others[o.slot.Whole()] = o
			}
		}
		if len(others) >= most {
			runs := []*run{r}
			for _, o := range others {
				runs = append(runs, o)
			}
			c.bad("overlap", r.slot, evidence(runs...), "%s started while %d other slots of its job ran; its policy allows %d at once", r, len(others), most)
		}
	}
}

// checkLocks checks that no lock is deleted, and that no write of a lock adds a holder while an earlier
// one has all places.
func (c *checker) checkLocks() {
	for _, w := range c.h.Locks {
		if w.Gone {
			c.bad("lock", job.Slot{}, []string{fmt.Sprintf("lock revision %d over %d at %s", w.Seq, w.Last, Stamp(w.Time))}, "a lock was deleted: if its writer had been frozen, that would remove slots that were admitted meanwhile")
			continue
		}
		if k := c.cases[w.Lock.Job]; k.Job.Guarded() && len(w.Lock.Holders) > k.AtMost() {
			c.bad("lock", w.Lock.Holders[0].Slot, c.trace(w.Lock.Holders[0].Slot), "its job's lock has %d holders; its policy allows %d", len(w.Lock.Holders), k.AtMost())
		}
	}
}

// checkPlaces checks that the lock of a job admits no more slots at once than there are places. A
// slot has its place from its first claim to its outcome, also while it waits for a retry.
func (c *checker) checkPlaces() {
	begun := map[string][]LedgerWrite{} // by job, the first claims of its slots
	for s, writes := range c.writes {
		for _, w := range writes {
			if w.Record.State == job.Running && w.Record.Shards == 0 && !w.Alone && c.cases[s.Job].Job.Guarded() {
				begun[s.Job] = append(begun[s.Job], w)
				break
			}
		}
	}
	for name, claims := range begun {
		for _, claim := range claims {
			var others []LedgerWrite
			for _, other := range claims {
				end, ended := c.finalOf(other.Slot)
				if other.Seq < claim.Seq && ended && end.Seq > claim.Seq {
					others = append(others, other)
				}
			}
			if most := c.cases[name].AtMost(); len(others) >= most {
				lines := c.trace(claim.Slot)
				for _, o := range others {
					lines = append(lines, c.trace(o.Slot)...)
				}
				c.bad("place", claim.Slot, lines, "it was claimed while %d other slots of its job had begun and had no outcome; its policy allows %d", len(others), most)
			}
		}
	}
}

// checkReplaced checks that under the policy replace, newer slots cancel older ones that run. A run
// may go on beside a newer slot, for example if its owner has died. But if several runs do, and none
// is ever cancelled for a newer slot, the newer slots only wait.
func (c *checker) checkReplaced() {
	const allowed, enough = 2 * time.Second, 3
	outlived := map[string][]*run{} // by job
	for _, r := range c.all {
		k := c.cases[r.slot.Job]
		if k.Job.Overlap != job.OverlapReplace {
			continue
		}
		newer := job.NewSlot(r.slot.Job, r.slot.At.Add(k.Every))
		stored, ok := c.first[newer]
		if at, _ := c.h.Broker.Boot(stored); ok && r.stop > max(at, r.start)+allowed {
			outlived[r.slot.Job] = append(outlived[r.slot.Job], r)
		}
	}
	for _, r := range c.all {
		if r.cause == job.ErrReplaced.Error() {
			delete(outlived, r.slot.Job)
		}
	}
	for name, runs := range outlived {
		if len(runs) >= enough {
			c.bad("never replaced", runs[0].slot, evidence(runs...), "under replace, %d slots of job %s ran for more than %v beside a newer slot, and no slot was ever cancelled for a newer one", len(runs), name, allowed)
		}
	}
}

// checkExplanation checks that a slot that was skipped or cancelled because of another slot names
// that slot, and that the policy allows this reason.
func (c *checker) checkExplanation(s job.Slot, w LedgerWrite) {
	text, _, ok := strings.Cut(strings.TrimPrefix(w.Record.Error, "slot "), " was in its way")
	if w.Record.State == job.Cancelled {
		text, ok = strings.CutPrefix(w.Record.Error, job.ErrReplaced.Error()+" by ")
		text, _, _ = strings.Cut(text, ": ") // without the error of the handler
	}
	other, err := job.ParseSlotID(text)
	if !ok || err != nil {
		c.bad("explanation", s, c.trace(s), "it is %s, and its error does not name the slot in its way", w.Record.State)
		return
	}
	end, ended := c.finalOf(other)
	switch first, published := c.first[other]; {
	case !c.expected[other]:
		c.bad("explanation", s, c.trace(s), "it is %s because of %s, which does not exist", w.Record.State, other)
	case !published || first.After(w.Time.Add(c.h.Skew)):
		c.bad("explanation", s, append(c.trace(s), c.trace(other)...), "it is %s because of %s, which was published later", w.Record.State, other)
	case c.cases[s.Job].Job.Overlap == job.OverlapSkip && ended && end.Time.Before(c.first[s]):
		c.bad("explanation", s, append(c.trace(s), c.trace(other)...), "it is skipped because of %s, which had its outcome before this slot was published", other)
	case c.cases[s.Job].Job.Overlap != job.OverlapSkip && !other.At.After(s.At):
		c.bad("explanation", s, append(c.trace(s), c.trace(other)...), "it is %s because of %s, which is not newer", w.Record.State, other)
	}
}

// finalOf returns the first write of a slot's outcome that is known.
func (c *checker) finalOf(s job.Slot) (LedgerWrite, bool) {
	for _, w := range c.writes[s] {
		if w.Record.State.Final() {
			return w, true
		}
	}
	return LedgerWrite{}, false
}
