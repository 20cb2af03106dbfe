package promise

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// SlowAnswer is how long an undisturbed server may take to answer a small request. If an answer
// takes longer, the machine or its disk may be the reason why the fleet is late. Torture records
// such answers to its own requests, and to the heartbeats of its processes.
const SlowAnswer = 250 * time.Millisecond

// hostOf returns the process of a life.
func hostOf(life string) string {
	host, _, _ := strings.Cut(life, ".")
	return host
}

// disturbed reports whether a life of a process was disturbed between two boot times: by a fault of
// the process, the servers or the streams, by its end, or by a machine that starved the process,
// torture itself or the servers. The fault ignored, if it is not nil, does not count.
func (c *checker) disturbed(life string, from, to time.Duration, ignored *Line) bool {
	overlaps := func(l Line) bool { return l.From < to && from < l.Boot }
	for i := range c.faults {
		l := &c.faults[i]
		if l != ignored && (l.Of == "" || hostOf(l.Of) == hostOf(life)) && overlaps(*l) {
			return true
		}
	}
	for _, process := range []string{life, TortureProcess, ServerProcess} {
		for _, p := range c.pauses[process] {
			if overlaps(p) {
				return true
			}
		}
	}
	died, ok := c.h.Deaths[life]
	return ok && died < to
}

// findStalls notes a pause of the servers for each period in which they stored nothing although the
// fleet writes several heartbeats in such a period. Writes wait for the disk. The answers that
// torture asks for do not, so they do not show these pauses.
func (c *checker) findStalls() {
	var stored []time.Time
	for _, w := range c.h.Nodes {
		stored = append(stored, w.Time)
	}
	for _, w := range c.h.Ledger {
		stored = append(stored, w.Time)
	}
	for _, w := range c.h.Slots {
		stored = append(stored, w.Time)
	}
	slices.SortFunc(stored, time.Time.Compare)
	for i := 1; i < len(stored); i++ {
		if stored[i].Sub(stored[i-1]) > max(SlowAnswer, c.h.Lease/20) {
			from, _ := c.h.Broker.Boot(stored[i-1])
			to, _ := c.h.Broker.Boot(stored[i])
			c.pauses[ServerProcess] = append(c.pauses[ServerProcess], Line{What: LinePause, Process: ServerProcess, From: from, Boot: to})
		}
	}
}

// sign is evidence that a process lost its lease.
type sign struct {
	at   time.Duration
	text string
}

// checkSlowness checks that no lease is lost while the servers answer within a third of the
// lease (invariant 9).
func (c *checker) checkSlowness() {
	for i := range c.faults {
		l := &c.faults[i]
		if l.Kind != plan.Lag || l.Delay > c.h.Lease/3 || l.Of == "" {
			continue
		}
		for _, s := range c.leasesLost(*l) {
			if !c.disturbed(l.Of, s.at-c.h.Lease, s.at, l) && !c.heldUp(*l, s.at-c.h.Lease, s.at) {
				c.bad("slowness", job.Slot{}, []string{l.String(), s.text}, "process %s lost its lease of %v although every answer came within %v", l.Of, c.h.Lease, l.Delay)
				break
			}
		}
	}
}

// heldUp reports whether the servers themselves, between two boot times, took so long to answer a
// heartbeat of the process of a Lag that the answer came later than a third of the lease. The pauses
// of the servers do not show that: a server handles the messages of one connection one after the
// other, and a read waits there until the stream that it reads is synced. So a server can hold up
// one connection, with the heartbeat in it, while it answers all others.
//
// One answer that comes later than that is always among the reasons if slow answers alone lose a
// lease. A heartbeat that the process itself sent late is no excuse.
func (c *checker) heldUp(lag Line, from, to time.Duration) bool {
	return slices.ContainsFunc(c.held, func(l Line) bool {
		return l.Of == lag.Of && l.From < to && from < l.Boot && l.Boot-l.From+lag.Delay > c.h.Lease/3
	})
}

// leasesLost returns the signs that a process lost its lease because of a fault: a handler whose
// context ended for that reason, or a node that was fenced. After its last heartbeat a process trusts
// its lease for more than half of its length. So a lease that is lost earlier than that after the
// beginning of the fault was not lost because of the fault.
func (c *checker) leasesLost(l Line) (signs []sign) {
	during := func(at time.Duration) bool { return l.From+c.h.Lease/2 < at && at < l.Boot }
	for _, r := range c.all {
		if r.process == l.Of && r.cause == job.ErrLeaseLost.Error() && during(r.stop) {
			signs = append(signs, sign{r.stop, r.lines[len(r.lines)-1].String()})
		}
	}
	for name := range c.nodes {
		last, known := c.lastHeartbeat(name)
		if !known || !strings.HasPrefix(name, hostOf(l.Of)+"-") || !c.fenced(name) {
			continue
		}
		// The node's trust in its lease ended before others could fence the node.
		at, _ := c.h.Broker.Boot(last.Time.Add(c.h.Lease * 3 / 4))
		if during(at) {
			signs = append(signs, sign{at, fmt.Sprintf("node %s was fenced; its last heartbeat was stored at %s", name, Stamp(last.Time))})
		}
	}
	return signs
}

// fenced reports whether a node was fenced.
func (c *checker) fenced(node string) bool {
	return slices.ContainsFunc(c.nodes[node], func(w NodeWrite) bool { return w.Node.State == exchange.NodeFenced })
}

// checkPublished checks that a slot is published in time while one undisturbed producer is
// up, whatever happens to the others. The servers can hold up the connection of one producer; see
// heldUp. They alone made it late only if they held up its heartbeat for more than half of
// plan.Promptly: a message waits for longer than the heartbeat behind it, by less than the interval of
// the heartbeats.
func (c *checker) checkPublished() {
	for _, s := range c.slots() {
		stored, ok := c.first[s]
		if s.Token != "" || s.Shards > 0 || !ok || stored.Sub(s.At) <= plan.Promptly {
			continue
		}
		due, _ := c.h.Broker.Boot(s.At)
		if life, ok := c.healthy(due-plan.Settled(c.h.Lease), due+plan.Promptly); ok {
			c.bad("published late", s, c.trace(s), "it was published %v after its instant, although the producer %s was up and undisturbed", stored.Sub(s.At), life)
		}
	}
}

// healthy returns a life of a producer that was undisturbed between two boot times.
func (c *checker) healthy(from, to time.Duration) (life string, ok bool) {
	for _, l := range c.ups {
		held := func(h Line) bool {
			return h.Of == l.Process && h.From < to && to-plan.Promptly < h.Boot && h.Boot-h.From > plan.Promptly/2
		}
		if l.Boot < from && c.h.Publishers[hostOf(l.Process)] && !c.disturbed(l.Process, from, to, nil) && !slices.ContainsFunc(c.held, held) {
			return l.Process, true
		}
	}
	return "", false
}
