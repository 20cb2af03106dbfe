package producer

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// auditEvery is the longest time between two audits, if there are slots: of the fleet by
	// a producer that rests, of one peer by a producer that takes part.
	auditEvery = 30 * time.Second

	// auditOneIn is of how many slots one is taken when an audit of a peer is due.
	auditOneIn = 4

	// auditAfter is how long ago a slot fell due that a resting producer publishes as an
	// audit. By then the producers that take part have published it.
	auditAfter = 15 * time.Second

	// auditLag is the slowest answer that proves anything. A broker that is slower may
	// keep the other producers behind.
	auditLag = time.Second

	// liarDistrust is for how long a producer does not count after an audit has found
	// that it does not publish.
	liarDistrust = 10 * time.Minute
)

// audit has a resting producer find out whether the others publish. It publishes one slot
// that they have published if they do: the broker then answers that it is a duplicate, and
// no login can forge that without publishing the slot.
func (s *shift) audit(now time.Time) {
	slot, ok := s.board.sample(later(now.Add(-s.cfg.Late), s.outbox.wokeAt), now.Add(-auditAfter))
	if !ok || slices.ContainsFunc(s.fleet.active, func(p *peer) bool { return slices.Contains(p.last.Except, slot.def.name) }) {
		return
	}
	parts := divided([]dueSlot{slot})
	_ = s.outbox.send(&item{dueSlot: parts[rand.IntN(len(parts))], state: settled, audited: slices.Clone(s.fleet.active)})
}

// sample returns a slot on the board that fell due after from and by until, and is not of
// a pause. While another producer has newer time zone data, it is in UTC. It walks one random path through the heap.
func (b *board) sample(from, until time.Time) (slot dueSlot, ok bool) {
	for i := 0; i < len(b.heap) && !b.heap[i].due().After(until); i = 2*i + 1 + rand.IntN(2) {
		g := b.heap[i]
		if g.paused || b.zonesBehind && g.schedule.Location() != time.UTC || ok && rand.IntN(2) == 0 {
			continue
		}
		l := g.lines[rand.IntN(len(g.lines))]
		delay := g.schedule.Delay()
		after := later(g.next.Add(-time.Second), from.Add(-delay))
		for at := range g.schedule.Between(after, until.Add(-delay)) {
			if l.covers(at) {
				slot, ok = dueSlot{line: l, def: l.task.def}, true
				slot.At, slot.Due = at, at.Add(delay)
			}
		}
	}
	return slot, ok
}

// isAudit reports whether this producer publishes a slot although the peer announced that
// it is stored.
func (o *outbox) isAudit(p *peer, s dueSlot) bool {
	now := time.Now()
	if s.isLate() || s.Due.Before(o.wokeAt) || now.Before(p.auditAt) || rand.IntN(auditOneIn) > 0 {
		return false
	}
	p.auditAt = nextAudit(now, o.fleet.auditEvery)
	return true
}

// nextAudit is random: of two producers that publish the same slot as an audit, one gets
// the answer that it is a duplicate, and learns nothing.
func nextAudit(now time.Time, every time.Duration) time.Time {
	return now.Add(every/2 + rand.N(every/2))
}

// judge takes in the broker's answer to an audit. If the slot was not there, the peers that
// should have published it do not count for a while. A slow answer proves nothing.
func (o *outbox) judge(a answer) {
	if a.err != nil || a.duplicate || time.Since(a.sent) > auditLag {
		return
	}
	var names []string
	for _, p := range a.audited {
		p.distrusted = time.Now().Add(liarDistrust)
		names = append(names, p.name)
	}
	o.found = o.found || o.fleet.rests
	o.p.cfg.Logger.Warn("announcement false: a slot was not published; this producer takes part without the nodes that announce it",
		"slot", a.message("").Slot.ID(), "nodes", names, "for", liarDistrust)
}
