package model

import (
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

const (
	besideEachOther = "two slots run beside each other"
	withoutPlace    = "a handler runs without a place"
	outOfRoom       = "the world is too small"
)

// lockMutation breaks the rules of the lock in one way.
type lockMutation struct {
	writeAnywhere  bool // the lock is written without a revision
	noAnswer       bool // a slot has its place before the write of the lock is answered
	leaveEarly     bool // a slot leaves the lock before its outcome is written
	claimFirst     bool // a slot is claimed before it has a place
	deadFrees      bool // a holder whose owner is dead counts as ended
	oldStay        bool // a slot that was reopened goes on in its old stay
	trustsMemory   bool // a remembered lock grants a place without a write
	ownOnly        bool // a worker does not take a slot out whose place names another node
	foundBefore    bool // a worker that finds an outcome does not read the record after the lock
	noLook         bool // a slot that stands in the line does not look at the lock again
	noLookAgain    bool // the line is not looked at again after a write that says it is empty
	entryFirst     bool // the entry is put into the line before the record is written
	forgetsHolder  bool // a slot that was called while it stood is not noticed
	leavesNothing  bool // a slot that ended without having asked the lock does not leave
	passedUnsent   bool // a slot that has to end is called after the write that passes its entry
	sweepTrusts    bool // the sweep looks only at the lines of locks that say that slots wait
	sweepNoHolders bool // the sweep offers no slot that holds a place
}

// locking makes the steps of the world with a lock.
type locking struct {
	policy   job.Overlap
	attempts int

	crashes          bool  // workers crash, and the sweep works
	cancels, reopens uint8 // what the operator does

	lockMutation
	verdict

	decisions map[decision]answer
	emit      func(label string, next queue, live bool)
}

type decision struct {
	n     int
	seen  slot
	place placed
	self  uint8
	again bool
	dead  bool
}

func newLocking(policy job.Overlap, attempts int) *locking {
	return &locking{policy: policy, attempts: attempts, decisions: map[decision]answer{}}
}

func (m *locking) start() (q queue) {
	for n := range q.msg {
		q.msg[n], q.fresh[n] = 1, true
	}
	q.cancels, q.reopens = m.cancels, m.reopens
	return q
}

// ended reports whether every slot has its outcome, no message is left, and no slot holds a place.
func (m *locking) ended(q queue) bool {
	for n := range q.slot {
		if q.msg[n] != 0 || !q.slot[n].final() || q.lock.holds(n) {
			return false
		}
	}
	return true
}

func (m *locking) check(q queue) {
	acting := 0
	for n := range q.slot {
		for i := range q.w {
			if q.w[i].duty[n].step != handles || q.slot[n].state != running || q.slot[n].node != uint8(i) {
				continue
			}
			acting++
			if !q.lock.holds(n) {
				m.violate(withoutPlace)
			}
		}
		if s := q.slot[n]; q.msg[n] == 0 && !s.final() && s.state != standing && !m.crashes && !q.called(n) {
			m.violate(ackedEarly)
		}
	}
	if acting > 1 {
		m.violate(besideEachOther)
	}
	if m.stuck(&q) {
		m.violate(noWayOut)
	}
}

// called reports whether a worker is about to publish a message of the slot.
func (q *queue) called(n int) bool {
	return (q.w[0].turn.calls|q.w[1].turn.calls)&(1<<n) != 0
}

func (m *locking) then(label string, q queue, live bool, change func(*queue)) {
	change(&q)
	for i := range q.w {
		for n := range q.slot {
			m.settle(&q, i, n)
		}
	}
	q.same()
	m.emit(label, q, live)
}

// settle makes the steps of a worker that concern nobody else: it decides. Their order does not matter.
func (m *locking) settle(q *queue, i, n int) {
	for q.w[i].duty[n].step == looked && m.decide(q, i, n) {
	}
	d := &q.w[i].duty[n]
	switch d.step {
	case puts, stood, looks, leaves, isLeaving, acks: // what the worker does not need any more
		write := slot{}
		if m.entryFirst {
			write = d.write
		}
		*d = duty{step: d.step, took: d.took, again: d.again, own: d.own, holds: d.holds, entry: d.entry, write: write, last: m.entryFirst && d.last}
	}
}

func (m *locking) successors(q queue, emit func(label string, next queue, live bool)) {
	m.emit = emit
	m.lates(q)
	m.operate(q)
	for i := range q.w {
		if m.crashes && q.w[i] != (porter{}) {
			m.then("crash", q, false, func(q *queue) { q.crash(i) })
		}
		m.turn(q, i)
		for n := range q.slot {
			m.work(q, i, n)
		}
	}
	if m.crashes {
		m.sweep(q)
	}
}

func (m *locking) lates(q queue) {
	for n, x := range q.late {
		if x.state != nothing {
			m.then("a late write lands", q, true, func(q *queue) { q.put(n, x) })
			m.then("a late write is lost", q, false, func(q *queue) { q.late[n] = slot{} })
		}
	}
	if q.isLate {
		m.then("a late lock lands", q, true, func(q *queue) { q.putLock(q.lateLock, m.writeAnywhere) })
		m.then("a late lock is lost", q, false, func(q *queue) { q.lateLock, q.isLate = lock{}, false })
	}
}

// operate makes the steps of an operator, who cancels a slot that has no owner and reopens one that failed.
func (m *locking) operate(q queue) {
	for n, s := range q.slot {
		if q.cancels > 0 && (s.state == standing || s.state == retrying) {
			m.then("cancelled", q, false, func(q *queue) {
				q.cancels--
				q.put(n, slot{state: failed, attempt: s.attempt})
				if q.lock.holds(n) && !q.offer(n) {
					m.violate(outOfRoom)
				}
			})
		}
		if q.reopens > 0 && s.state == failed {
			m.then("reopened", q, false, func(q *queue) {
				q.reopens--
				q.put(n, slot{state: retrying, node: operator, attempt: s.attempt})
				if !q.offer(n) {
					m.violate(outOfRoom)
				}
			})
		}
	}
}

// sweep publishes messages.
func (m *locking) sweep(q queue) {
	for _, n := range m.offers(&q) {
		m.then("offered by the sweep", q, true, func(q *queue) { q.offer(n) })
	}
}

// offers returns the slots for which the sweep publishes a message: they have none, and hold a place, have
// begun, or stand first in the line beside a free place.
func (m *locking) offers(q *queue) (all []int) {
	for n, s := range q.slot {
		owned := s.state == running && s.node < gone
		if q.msg[n] == 0 && !owned && (q.lock.holds(n) && !m.sweepNoHolders || s.state == retrying || s.state == running) {
			all = append(all, n)
		}
	}
	if q.lock.holders() > 0 || m.sweepTrusts && !q.lock.waiting {
		return all
	}
	for _, e := range q.line[q.lock.line:] {
		if e != 0 && q.slot[e-1].state == standing {
			if q.msg[e-1] == 0 {
				all = append(all, int(e-1))
			}
			return all
		}
	}
	return all
}

// stuck reports whether nothing happens any more although a slot has no outcome, or holds a place.
func (m *locking) stuck(q *queue) bool {
	for i := range q.w {
		if q.w[i].turn.phase != idleTurn || q.w[i].duty != [maxSlots]duty{} {
			return false
		}
	}
	return q.msg == [maxSlots]uint8{} && !q.isLate && q.late == [maxSlots]slot{} && !m.ended(*q) && (!m.crashes || len(m.offers(q)) == 0)
}

// work makes the steps of worker i that concern slot n.
func (m *locking) work(q queue, i, n int) {
	d := q.w[i].duty[n]
	free := q.w[i].turn.phase == idleTurn
	switch d.step {
	case away:
		m.deliver(q, i, n)
	case looked:
		if free {
			m.then("asks for a place", q, true, func(q *queue) { m.ask(q, i, n, asks) })
		}
	case claims, completes:
		m.answer(q, i, n)
	case puts:
		m.then("an entry is put", q, true, func(q *queue) {
			d, room := &q.w[i].duty[n], false
			if d.entry, room = q.put1(n); !room {
				m.violate(outOfRoom)
			}
			d.step = stood
			switch {
			case m.entryFirst:
				d.step = claims
			case m.noLook:
				d.step = acks
			}
		})
	case stood:
		if free {
			m.then("looks at the lock again", q, true, func(q *queue) { m.ask(q, i, n, looks) })
		}
	case handles:
		for _, res := range []core.Result{{}, {Err: errAgain}} {
			m.then("the handler ends", q, true, func(q *queue) {
				d := &q.w[i].duty[n]
				d.step, d.write = completes, m.complete(n, q.slot[n], res)
				if m.leaveEarly {
					l := q.lock
					l.place[n] = 0
					q.putLock(l, false)
				}
			})
		}
	case leaves:
		if free {
			m.then("leaves its place", q, true, func(q *queue) { m.ask(q, i, n, isLeaving) })
		}
	case acks:
		m.then("acked", q, true, func(q *queue) { q.ack(i, n) })
	}
}

func (q *queue) ack(i, n int) {
	d := &q.w[i].duty[n]
	q.msg[n] &^= 1 << d.took
	*d = duty{}
}

// deliver delivers a message. At a first delivery the worker does not read the record.
func (m *locking) deliver(q queue, i, n int) {
	for b := range uint8(maxOffers + 1) {
		switch {
		case q.msg[n]&(1<<b) == 0:
		case b == 0 && q.fresh[n]:
			m.then("delivered", q, true, func(q *queue) {
				q.fresh[n] = false
				q.w[i].duty[n] = duty{step: looked, last: q.slot[n].state == nothing}
			})
		default:
			m.then("delivered again", q, true, func(q *queue) {
				q.w[i].duty[n] = duty{step: looked, seen: q.slot[n], last: true, took: b, again: true}
			})
		}
	}
}

// decide decides about a slot. It returns false if the slot has to ask for a place first.
func (m *locking) decide(q *queue, i, n int) bool {
	d := &q.w[i].duty[n]
	ask := decision{n: n, seen: d.seen, place: d.place, self: uint8(i), again: d.took > 0}
	a := m.decision(ask)
	if a.action == core.Prove {
		if d.seen.node != gone {
			*d = duty{} // its owner lives
			return true
		}
		ask.dead = true
		a = m.decision(ask)
	}
	switch a.action {
	case core.Enter:
		return false
	case core.Ack:
		if d.step = acks; d.again || d.holds {
			d.step = leaves
		}
	case core.Stand:
		switch {
		case a.stored:
			d.step = puts
		case !d.last:
			d.refused(q.slot[n])
		case m.entryFirst:
			d.step, d.write = puts, a.slot
		default:
			d.step, d.write, d.seen = claims, a.slot, slot{}
		}
	case core.Start, core.End:
		if !d.last {
			d.refused(q.slot[n])
			return true
		}
		d.step, d.write, d.seen = claims, a.slot, slot{}
		d.own = d.place == held
	default:
		panic(a.action)
	}
	return true
}

// answer stores a write of the ledger, and answers it. The first world shows that a claim whose answer
// comes late is no danger.
func (m *locking) answer(q queue, i, n int) {
	if !q.w[i].duty[n].last {
		m.then("a write is refused", q, true, func(q *queue) { q.w[i].duty[n].refused(q.slot[n]) })
		return
	}
	m.then("a write lands", q, true, func(q *queue) {
		d := &q.w[i].duty[n]
		d.landed = true
		q.put(n, d.write)
		d = &q.w[i].duty[n]
		switch {
		case d.write.final():
			if d.step = acks; d.own || d.again && !m.leavesNothing {
				d.step = leaves
			}
		case d.write.state == standing:
			if d.step = puts; m.entryFirst {
				d.step = stood
			}
		case d.step == claims:
			*d = duty{step: handles, last: true, own: true, took: d.took, again: d.again}
		default:
			*d = duty{} // the attempt has failed, and the message is given back
		}
	})
}
