package promise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// lateness is how late a slot may be published before its catch-up policy applies.
const lateness = time.Minute

// checkPolicies checks that slots which were skipped, cancelled, missed or expired had a reason, and
// that the runs of the others kept to their deadlines and timeouts.
func (c *checker) checkPolicies() {
	for _, s := range c.slots() {
		w, ok := c.h.Records[s]
		if !ok {
			continue
		}
		k := c.cases[s.Job].Job
		from, late := s.At, time.Duration(0)
		if published, ok := c.first[s]; ok && s.Token == "" {
			late = published.Sub(s.At)
			if k.Deadline > 0 && c.caughtUp(s, w.Record.Published) {
				from = w.Record.Published // the deadline of a slot that was caught up counts from its publication
			}
		}
		switch w.Record.State {
		case job.Skipped, job.Cancelled:
			c.checkExplanation(s, w)
		case job.Missed:
			if late < lateness-time.Second {
				c.bad("missed", s, c.trace(s), "it was recorded as missed, but published %v after its instant; catch-up policies apply only after %v", late, lateness)
			}
		case job.Expired:
			if waited := w.Time.Sub(from); k.Deadline > 0 && waited < k.Deadline-c.slack(w.Record.Node) {
				c.bad("expired", s, c.trace(s), "it was recorded as expired %v after it was due; its deadline is %v", waited, k.Deadline)
			}
		}
		c.checkTimes(s, k, from)
	}
}

// caughtUp reports whether the slot's message that was stored at the given time was marked as caught
// up or as a backfill. The record has that time, so the worker that wrote it had received this
// message.
func (c *checker) caughtUp(s job.Slot, stored time.Time) bool {
	return slices.ContainsFunc(c.h.Slots, func(w SlotWrite) bool {
		return w.Message.Slot == s && w.Time.Equal(stored) && (w.Message.CaughtUp || w.Message.Backfill)
	})
}

// checkTimes checks the runs of a slot against its job's timeout, and against the job's deadline, which
// counts from due.
func (c *checker) checkTimes(s job.Slot, k job.Job, due time.Time) {
	for _, r := range c.runs[s] {
		// The deadline applies to the decision to start the first attempt. Its claim may be stored
		// later, and a claim that was released is made again even later.
		if claim, ok := c.bySeq[r.fence]; ok && k.Deadline > 0 && claim.Last == 0 && !claim.Alone && len(claim.Record.Attempts) == 1 {
			if waited := claim.Record.Attempts[0].Started.Sub(due); waited > k.Deadline+c.slack(r.node) {
				c.bad("past its deadline", s, append(evidence(r), "ledger: "+claim.String()), "%s was claimed %v after it was due; its deadline is %v", r, waited, k.Deadline)
			}
		}
		if ran := r.stop - r.start; k.Timeout > 0 && ran > k.Timeout+moment && !c.wasFrozen(r.process, r.stop) {
			c.bad("past its timeout", s, evidence(r), "%s ran for %v; its timeout is %v", r, ran, k.Timeout)
		}
	}
}

// wasFrozen reports whether a process was frozen at a boot time, or in the ten seconds before it.
func (c *checker) wasFrozen(process string, at time.Duration) bool {
	return slices.ContainsFunc(c.pauses[process], func(p Line) bool { return p.From <= at && at <= p.Boot+10*time.Second })
}

// soonest is how old a slot must be before the sweep may treat its message as lost.
const soonest = 20 * time.Second

// checkMessages checks that every message of a slot has the slot's ID, so that the stream drops
// copies, and that no message is offered again too soon, against its catch-up policy, or for a slot
// that does not exist.
func (c *checker) checkMessages() {
	for _, w := range c.h.Slots {
		id := w.Message.Slot.ID()
		if w.ID != id && !strings.HasPrefix(w.ID, id+"/r") {
			c.bad("message ID", w.Message.Slot, []string{fmt.Sprintf("message %d at %s has ID %q", w.Seq, Stamp(w.Time), w.ID)}, "its message has another ID, so the stream drops no copies")
		}
		if age := w.Time.Sub(plans.Later(w.Message.Slot.At, c.first[w.Message.Slot])); w.ID != id && age < soonest && w.Message.Slot.Token == "" {
			c.bad("offered too soon", w.Message.Slot, []string{fmt.Sprintf("message %d at %s has ID %q, by %s", w.Seq, Stamp(w.Time), w.ID, w.Message.Node)}, "it was offered again %v after it had fallen due or been published", age)
		}
		if k := c.cases[w.Message.Slot.Job].Job; k.CatchUp.Policy == job.CatchUpNone && w.Message.CaughtUp {
			c.bad("caught up", w.Message.Slot, c.trace(w.Message.Slot), "message %d makes it run although it was late; its policy never runs late slots", w.Seq)
		}
		if s := w.Message.Slot; !c.expected[s] && !c.cases[s.Job].Triggered {
			c.bad("unexpected", w.Message.Slot, []string{fmt.Sprintf("message %d at %s, by %s", w.Seq, Stamp(w.Time), w.Message.Node)}, "a message was published for a slot that no plan of its job has")
		}
	}
}

// checkWatermark checks that the watermark never goes back, and that it does not pass a slot before
// a message of the slot is stored.
func (c *checker) checkWatermark() {
	for i, w := range c.h.Marks {
		if i > 0 {
			if before := c.h.Marks[i-1].Mark; w.Mark.Time.Before(before.Time) || w.Mark.Revision < before.Revision {
				c.bad("watermark", job.Slot{}, nil, "the watermark went back from %s (registry %d) to %s (registry %d), by %s",
					before.Time.Format(time.RFC3339Nano), before.Revision, w.Mark.Time.Format(time.RFC3339Nano), w.Mark.Revision, w.Mark.Node)
			}
		}
	}
	// For each slot, in order, look at the first watermark that passed it.
	next := 0
	for _, s := range c.slots() {
		if s.Token != "" {
			continue
		}
		for next < len(c.h.Marks) && c.h.Marks[next].Mark.Time.Before(s.At) {
			next++
		}
		if next == len(c.h.Marks) {
			return
		}
		mark := c.h.Marks[next]
		if stored, ok := c.first[s]; ok && stored.After(mark.Time.Add(c.h.Skew)) {
			c.bad("watermark before publish", s, []string{fmt.Sprintf("watermark %s written at %s by %s", mark.Mark.Time.UTC().Format(time.RFC3339Nano), Stamp(mark.Time), mark.Mark.Node)},
				"the watermark passed it %v before it was stored", stored.Sub(mark.Time))
		}
	}
}

// checkAcks checks that a message is acked only after the outcome of its slot was stored.
func (c *checker) checkAcks() {
	slots := map[uint64]job.Slot{}
	for _, w := range c.h.Slots {
		slots[w.Seq] = w.Message.Slot
	}
	for _, a := range c.h.Acks {
		s, ok := slots[a.Seq]
		if !ok {
			continue
		}
		at, err := c.h.Broker.At(a.Boot)
		w, ok := c.finalOf(s)
		if !ok {
			c.bad("acked too early", s, c.trace(s), "its message %d was acked at %s, and it has no outcome", a.Seq, Stamp(at))
		} else if early := w.Time.Sub(at); early > err+c.h.Skew+time.Millisecond {
			c.bad("acked too early", s, c.trace(s), "its message %d was acked %v before its outcome was recorded", a.Seq, early)
		}
	}
}
