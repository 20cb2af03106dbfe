package promise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// checkLedger checks the writes of each record. A running slot is written only by its owner, or by
// another node after the owner was proved dead. A slot that has its outcome is not written any more.
func (c *checker) checkLedger() {
	for s, writes := range c.writes {
		for _, w := range writes {
			var before *LedgerWrite
			switch prev, known := c.bySeq[w.Last]; {
			case known:
				before = &prev
			case w.Last != 0, w.Alone:
				continue // the write that it replaced is not known
			}
			if why := c.illegal(before, w); why != "" {
				lines := []string{"ledger: " + w.String()}
				if before != nil {
					lines = []string{"ledger: " + before.String(), "ledger: " + w.String()}
					lines = append(lines, c.nodeTrace(before.Record.Node)...)
				}
				c.bad("ledger", s, append(lines, evidence(c.runs[s]...)...), "%s", why)
			}
		}
	}
}

// illegal returns the reason why w must not follow before. Empty: it may.
func (c *checker) illegal(before *LedgerWrite, w LedgerWrite) string {
	now := w.Record
	switch {
	case w.Gone:
		return "a record was deleted"
	case now.Shards > 0: // a slot that is split has no owner
		if before != nil && before.Record.State.Final() {
			return fmt.Sprintf("its outcome %s was overwritten by %s", before.Record.State, now.State)
		}
		return ""
	case before == nil && now.State == job.Running && now.Attempt != 1:
		return fmt.Sprintf("its first claim is attempt %d", now.Attempt)
	case before == nil && (now.State == job.Succeeded || now.State == job.Retrying):
		return fmt.Sprintf("it is %s, and no node had claimed it", now.State)
	case before == nil:
		return ""
	}
	was := before.Record
	switch {
	case was.State.Final():
		return fmt.Sprintf("its outcome %s was overwritten by %s", was.State, now.State)
	case was.State == job.Running && now.Node != was.Node:
		return c.takenOver(*before, w)
	case was.State == job.Running && now.State == job.Running && now.Attempt != was.Attempt:
		return fmt.Sprintf("its owner claimed attempt %d although attempt %d had no end", now.Attempt, was.Attempt)
	case was.State == job.Retrying && now.State == job.Running && now.Attempt != was.Attempt+1:
		return fmt.Sprintf("attempt %d was claimed after attempt %d", now.Attempt, was.Attempt)
	case was.State == job.Retrying && now.State == job.Succeeded:
		return "it succeeded without a claim"
	case now.Attempt < was.Attempt-1:
		return fmt.Sprintf("its attempts went back from %d to %d", was.Attempt, now.Attempt)
	}
	return ""
}

// takenOver returns the reason why another node must not write over a running slot. Empty: it may.
func (c *checker) takenOver(claim, w LedgerWrite) string {
	was := claim.Record
	dead, ok := c.deadSince(was.Node)
	late := !ok || dead.After(w.Time.Add(c.h.Skew))
	switch {
	case late && c.disowned(claim, w):
		return ""
	case !ok:
		return fmt.Sprintf("%s wrote it as %s over a claim of %s, which was neither fenced nor stopped", w.Record.Node, w.Record.State, was.Node)
	case late:
		return fmt.Sprintf("%s wrote it as %s over a claim of %s, %v before that node was proved dead", w.Record.Node, w.Record.State, was.Node, dead.Sub(w.Time))
	case w.Record.State == job.Running && w.Record.Attempt != was.Attempt+1:
		return fmt.Sprintf("it was taken over as attempt %d after attempt %d", w.Record.Attempt, was.Attempt)
	case w.Record.State == job.Succeeded, w.Record.State == job.Retrying:
		return fmt.Sprintf("%s, which had no claim on it, recorded it as %s", w.Record.Node, w.Record.State)
	}
	return ""
}

// disowned reports whether w takes a slot over from a live node that has answered that it does not
// hold its claim. What the handlers recorded must confirm that answer. Either no handler was started
// at this claim, or the handler had returned and its owner could not complete the slot any more,
// because its trust in its lease had ended or was about to end.
func (c *checker) disowned(claim, w LedgerWrite) bool {
	says := func(a job.Attempt) bool {
		return a.Fence == claim.Seq && strings.Contains(a.Error, "does not hold its claim")
	}
	if !slices.ContainsFunc(w.Record.Attempts, says) {
		return false
	}
	at, err := c.h.Broker.Boot(w.Time)
	for _, r := range c.runs[w.Slot] {
		if r.fence == claim.Seq {
			return r.ended && r.stop <= at+err+c.h.Skew && (r.cause == job.ErrLeaseLost.Error() || c.returnedLate(r, w.Time))
		}
	}
	return true
}

// returnedLate reports whether a handler returned after its node's trust in its lease had ended:
// three quarters of the lease after the last heartbeat before the given time. A process that wakes
// may notice the end of a handler before it notices the end of its trust.
func (c *checker) returnedLate(r *run, before time.Time) bool {
	var beat time.Time
	for _, w := range c.nodes[r.node] {
		if w.Node.State == exchange.NodeAlive && !w.Time.After(before) {
			beat = w.Time
		}
	}
	lapse, err := c.h.Broker.Boot(beat.Add(c.h.Lease * 3 / 4))
	return slices.ContainsFunc(r.lines, func(l Line) bool { return l.What == LineEnd && l.Boot >= lapse-err-c.h.Skew })
}

// deadSince returns when a node was proved dead: when it was fenced, or recorded that it stopped.
func (c *checker) deadSince(node string) (time.Time, bool) {
	for _, w := range c.nodes[node] {
		if w.Node.State != exchange.NodeAlive {
			return w.Time, true
		}
	}
	return time.Time{}, false
}

// nodeTrace returns the last writes of a node's key.
func (c *checker) nodeTrace(node string) []string {
	var lines []string
	writes := c.nodes[node]
	for _, w := range writes[max(0, len(writes)-3):] {
		line := fmt.Sprintf("node %s: revision %d over %d at %s: %s", node, w.Seq, w.Last, Stamp(w.Time), w.Node.State)
		if w.Node.FencedBy != "" {
			line += " by " + w.Node.FencedBy
		}
		lines = append(lines, line)
	}
	if lines == nil {
		lines = []string{"node " + node + ": never seen"}
	}
	return lines
}

// checkClaims checks that each handler starts after its claim was stored, at the revision of
// the claim, and that fences grow.
func (c *checker) checkClaims() {
	fences := map[uint64]*run{}
	for _, r := range c.all {
		if other, ok := fences[r.fence]; ok {
			c.bad("one fence, two starts", r.slot, evidence(other, r), "fence %d was given to two handlers", r.fence)
		}
		fences[r.fence] = r
		claim, seen := c.bySeq[r.fence]
		switch {
		case seen && claim.Slot == r.slot && claim.Record.State == job.Running && claim.Record.Node == r.node && claim.Record.Attempt == r.attempt:
			at, err := c.h.Broker.At(r.start)
			if claim.Time.After(at.Add(err + c.h.Skew)) {
				c.bad("start before the claim", r.slot, append(evidence(r), "ledger: "+claim.String()), "%s started %v before its claim was stored", r, claim.Time.Sub(at))
			}
		case seen:
			c.bad("start without a claim", r.slot, append(evidence(r), "ledger: "+claim.String()), "%s started, but the write at revision %d is not its claim", r, r.fence)
		case r.fence == 0 || !c.confirmed(r):
			c.bad("start without a claim", r.slot, c.trace(r.slot), "%s started, but its claim was never stored", r)
		}
	}
	for s, runs := range c.runs {
		for i := 1; i < len(runs); i++ {
			if a, b := runs[i-1], runs[i]; (b.fence <= a.fence || b.attempt < a.attempt) && !c.claimedBeforeFreeze(b) {
				c.bad("fence", s, evidence(a, b), "%s started after %s: fences must grow, and attempts must not go back", b, a)
			}
		}
	}
}

// confirmed reports whether later writes prove that the claim of a run, which the broker did not
// republish, was stored.
func (c *checker) confirmed(r *run) bool {
	for _, w := range c.writes[r.slot] {
		for _, a := range w.Record.Attempts {
			if a.Number == r.attempt && a.Node == r.node && (a.Fence == r.fence || a.Fence == 0) {
				return true
			}
		}
		if w.Last == r.fence {
			return true
		}
	}
	return false
}
