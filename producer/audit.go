package producer

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
)

const (
	// auditEvery is the shortest time between two audits by a resting producer. An active
	// producer audits each peer after a random time between half of auditEvery and all of it:
	// it then audits a slot that the peer announces (see auditOneIn).
	auditEvery = 30 * time.Second

	// While an audit of a peer is due, each slot that the peer announces is audited with the
	// probability 1/auditOneIn.
	auditOneIn = 4

	// auditAfter is the least age of a slot that a resting producer publishes as an audit. The
	// active producers should have published slots of that age.
	auditAfter = 15 * time.Second

	// auditLag is how long the answer to an audit may take and still prove something. If the
	// broker is slower, the other producers may just be behind.
	auditLag = time.Second

	// falseDistrust is how long a peer does not count after an audit has found that it did not
	// publish a slot that it had announced.
	falseDistrust = 10 * time.Minute
)

// audit lets a resting producer check that the active ones publish. It publishes one slot
// that they should have published. If they have, the broker answers that it is a duplicate.
// No login can forge that answer without publishing the slot.
func (s *session) audit(now time.Time) {
	slot, ok := s.agenda.sample(plans.Later(now.Add(-plans.LateAfter), s.outbox.wokeAt), now.Add(-auditAfter))
	if !ok || slices.ContainsFunc(s.fleet.active, func(p *peer) bool { return slices.Contains(p.last.Except, slot.def.name) }) {
		return
	}
	shards := divided([]dueSlot{slot})
	_ = s.outbox.send(&item{dueSlot: shards[rand.IntN(len(shards))], state: done, audited: slices.Clone(s.fleet.active)})
}

// sample returns a slot on the agenda that fell due after from, up to and including until, and not
// in a pause. While another producer has newer time zone data, it takes slots in UTC only. It
// walks one random path through the heap.
func (a *agenda) sample(from, until time.Time) (slot dueSlot, ok bool) {
	for i := 0; i < len(a.heap) && !a.heap[i].due().After(until); i = 2*i + 1 + rand.IntN(2) {
		g := a.heap[i]
		if g.paused || a.zonesBehind && g.schedule.Location() != time.UTC || ok && rand.IntN(2) == 0 {
			continue
		}
		l := g.lines[rand.IntN(len(g.lines))]
		delay := g.schedule.Delay()
		after := plans.Later(g.next.Add(-time.Second), from.Add(-delay))
		for at := range g.schedule.Between(after, until.Add(-delay)) {
			if !l.endsBefore(at) {
				slot, ok = dueSlot{line: l, def: l.job.def}, true
				slot.At, slot.Due = at, at.Add(delay)
			}
		}
	}
	return slot, ok
}

// startsAudit reports whether this producer publishes a slot as an audit although the peer has
// announced it. If so, it sets the time of the peer's next audit.
func (o *outbox) startsAudit(p *peer, s dueSlot) bool {
	now := time.Now()
	if s.isLate() || s.Due.Before(o.wokeAt) || now.Before(p.auditAt) || rand.IntN(auditOneIn) > 0 {
		return false
	}
	p.auditAt = nextAudit(now, o.fleet.auditEvery)
	return true
}

// nextAudit returns a random time. If two producers audited the same slot, the second would
// get the answer "duplicate" because of the first.
func nextAudit(now time.Time, every time.Duration) time.Time {
	return now.Add(every/2 + rand.N(every/2))
}

// concludeAudit takes in the broker's answer to an audit. If the audit stored the slot, the
// peers that should have published it before do not count for a while. A slow answer proves
// nothing.
func (o *outbox) concludeAudit(a answer) {
	if a.err != nil || a.duplicate || time.Since(a.sent) > auditLag {
		return
	}
	var names []string
	for _, p := range a.audited {
		p.distrust(falseDistrust)
		names = append(names, p.name)
	}
	o.peersSilent = o.peersSilent || o.fleet.resting
	o.p.cfg.Logger.Warn("announcement false: a slot was not published; producing without these nodes",
		"slot", a.message("").Slot.ID(), "nodes", names, "duration", falseDistrust)
}
