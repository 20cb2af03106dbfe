package promise

import (
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// checkRuns checks that no more attempts start than the job allows, that no other worker runs a slot
// while its owner lives, and that no run starts too early or ends too late.
func (c *checker) checkRuns() {
	for s, runs := range c.runs {
		k := c.cases[s.Job]
		attempts := k.Job.WithDefaults().Retry.Attempts
		if !c.expected[s] && !k.Triggered {
			c.bad("unexpected", s, evidence(runs...), "a handler was started for a slot that no plan of its job has")
		}
		for _, r := range runs {
			if r.attempt > attempts {
				c.bad("too many attempts", s, evidence(r), "%s started; the job has %d", r, attempts)
			}
		}
		if n := len(runs); n > attempts {
			c.bad("too many attempts", s, evidence(runs...), "it was started %d times; the job allows %d", n, attempts)
		}
		if w, ok := c.h.Records[s]; ok && w.Record.Attempt > attempts {
			c.bad("too many attempts", s, evidence(runs...), "its record counts %d attempts; the job allows %d", w.Record.Attempt, attempts)
		}
		for i, r := range runs {
			c.checkAlone(runs[:i], r)
			c.checkPunctual(r)
		}
	}
}

// checkAlone checks that r overlaps no earlier run of its slot, and that no earlier run ended with a
// permanent error. The second rule does not forgive a run that a freeze between its claim and its start
// has shortened to nothing. The other rules forgive such a run, at least once in a history. So they miss
// a worker that does not check its lease right before the start. If a freeze hits a correct worker in the
// moment after that check, this rule can blame it wrongly, but that is much rarer.
func (c *checker) checkAlone(earlier []*run, r *run) {
	for _, other := range earlier {
		if over := other.stop - r.start; over > 0 && r.stop > r.start && !c.finishes(r) {
			lines := append(evidence(other, r), c.nodeTrace(other.node)...)
			c.bad("two at once", r.slot, lines, "%s started %v before %s had to stop", r, over, other)
		}
		if other.ended && other.result == plan.ResultPermanent && c.recorded(other) {
			c.bad("after a permanent error", r.slot, evidence(other, r), "%s started although %s had failed with a permanent error", r, other)
		}
	}
}

// finishes reports whether the handler may go on when the lease is lost.
func (c *checker) finishes(r *run) bool {
	return c.cases[r.slot.Job].Job.OnLeaseLost == job.LeaseLostFinish
}

// recorded reports whether the end of a run was stored in place of its claim.
func (c *checker) recorded(r *run) bool {
	return slices.ContainsFunc(c.writes[r.slot], func(w LedgerWrite) bool {
		return w.Last == r.fence && w.Record.Node == r.node && w.Record.State != job.Running
	})
}

// checkPunctual checks that no run starts before its slot or its retry is due, or after its node was
// proved dead, and that no run goes on after that.
func (c *checker) checkPunctual(r *run) {
	at, err := c.h.Broker.At(r.start)
	if due := c.due(r.slot); !due.IsZero() && due.Sub(at) > c.slack(r.node)+err {
		c.bad("early", r.slot, evidence(r), "%s started %v before its instant, by the broker's clock", r, due.Sub(at))
	}
	if claim, ok := c.bySeq[r.fence]; ok {
		if before, ok := c.bySeq[claim.Last]; ok && before.Slot == r.slot && before.Record.State == job.Retrying {
			if early := before.Record.RetryAt.Sub(at); early > c.slack(r.node)+c.slack(before.Record.Node)+err {
				c.bad("retry too early", r.slot, append(evidence(r), "ledger: "+before.String()), "%s started %v before its retry was due", r, early)
			}
		}
	}
	dead, ok := c.deadSince(r.node)
	if !ok {
		return
	}
	end, err := c.h.Broker.Boot(dead)
	slack := err + c.h.Skew
	c.checkMargin(r)
	switch {
	case r.start > end+slack && !c.excused(r):
		c.bad("started after death", r.slot, append(evidence(r), c.nodeTrace(r.node)...), "%s started %v after its node was proved dead", r, r.start-end)
	case r.start <= end && r.stop > end+slack && !c.finishes(r):
		c.bad("outlived the lease", r.slot, append(evidence(r), c.nodeTrace(r.node)...), "%s could act for %v after its node was proved dead", r, r.stop-end)
	}
}

// checkMargin checks that a context ends well before the lease, so that its handler has time to
// return. Nodes leave a quarter of the lease for that. The check demands only half of that quarter,
// because a node may check its clock late.
func (c *checker) checkMargin(r *run) {
	if r.cause != job.ErrLeaseLost.Error() || c.finishes(r) {
		return
	}
	last, ok := c.lastHeartbeat(r.node)
	if !ok {
		return
	}
	end, err := c.h.Broker.Boot(last.Time.Add(c.h.Lease - c.h.Lease/8))
	if _, frozen := c.frozenSince(r.process, r.stop); !frozen && r.stop > end+err+c.h.Skew {
		c.bad("no margin", r.slot, append(evidence(r), c.nodeTrace(r.node)...), "the context of %s ended %v before its lease did; want at least %v", r, end+c.h.Lease/8-r.stop, c.h.Lease/8)
	}
}

// lastHeartbeat returns the last heartbeat of a node that was fenced or has stopped. It reports false
// if the write that fenced or stopped the node did not replace that heartbeat. Then a later heartbeat
// is missing: a server does not republish what it stores just before it is killed.
func (c *checker) lastHeartbeat(node string) (NodeWrite, bool) {
	for i, w := range c.nodes[node] {
		if i > 0 && w.Node.State != exchange.NodeAlive {
			last := c.nodes[node][i-1]
			return last, last.Seq == w.Last && last.Node.State == exchange.NodeAlive
		}
	}
	return NodeWrite{}, false
}

// excused reports whether a freeze explains a start after the node's death: the freeze began between
// the last check of the clock and the start. That is rare, so one such start is excused in a
// history. A worker that does not check the clock has many.
func (c *checker) excused(r *run) bool {
	if !c.claimedBeforeFreeze(r) {
		return false
	}
	c.excuses++
	return c.excuses <= 1
}

// claimedBeforeFreeze reports whether a process was frozen between the claim and the start of a run,
// and the run ended as soon as the process woke.
func (c *checker) claimedBeforeFreeze(r *run) bool {
	froze, ok := c.frozenSince(r.process, r.start)
	claim, seen := c.bySeq[r.fence]
	if !ok || !seen || r.stop-r.start > moment {
		return false
	}
	at, err := c.h.Broker.At(froze)
	return !claim.Time.After(at.Add(err + c.h.Skew + 50*time.Millisecond)) // recorder.watch looks only every 20 ms
}

// checkNodes checks that a node is fenced only after a whole lease without a heartbeat, and
// that no heartbeat follows the end of a node.
func (c *checker) checkNodes() {
	for name, writes := range c.nodes {
		for i, w := range writes {
			if i == 0 {
				continue
			}
			before := writes[i-1]
			switch {
			case before.Node.State != exchange.NodeAlive && w.Node.State == exchange.NodeAlive:
				c.bad("back from death", job.Slot{}, c.nodeTrace(name), "node %s was %s, and then wrote a heartbeat", name, before.Node.State)
			case w.Node.State == exchange.NodeFenced && before.Node.State == exchange.NodeAlive && w.Last == before.Seq &&
				w.Time.Sub(before.Time) < c.h.Lease-c.h.Skew:
				c.bad("fenced alive", job.Slot{}, c.nodeTrace(name), "node %s was fenced %v after its last heartbeat; the lease is %v", name, w.Time.Sub(before.Time), c.h.Lease)
			}
		}
	}
}
