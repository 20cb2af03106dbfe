package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

const (
	besideEachOther = "two slots run beside each other"
	withoutPlace    = "a handler runs without a place"
)

// lockMutation breaks the rules of the lock in one way.
type lockMutation struct {
	deadFrees     bool // a slot whose owner is dead loses its place
	writeAnywhere bool // the lock is written without a revision
	leaveAnywhere bool // a slot is taken out of the lock by a write without a revision
	noAnswer      bool // a slot has its place before the write of the lock is answered
	neverLearns   bool // no worker notices that a holder has ended
	leaveEarly    bool // a slot leaves the lock before its outcome is written
	claimFirst    bool // a slot is claimed before it has a place
	goneFrees     bool // a slot without a record loses its place
}

// locking makes the steps of the world with a lock.
type locking struct {
	policy   job.Overlap
	attempts int
	lockMutation
	verdict

	decisions map[decision]answer
	entries   map[entrant]entry
	emit      func(label string, next queue, live bool)
}

type decision struct {
	n     int
	seen  slot
	place placed
	self  uint8
	dead  bool
}

type entrant struct {
	n     int
	lock  lock
	seen  slot
	ended uint8 // the slots that have ended, as the ledger says
}

type entry struct {
	next  lock
	place placed
	asked bool
}

func newLocking(policy job.Overlap, attempts int) *locking {
	return &locking{policy: policy, attempts: attempts, decisions: map[decision]answer{}, entries: map[entrant]entry{}}
}

func (m *locking) start() (q queue) {
	for n := range q.msg {
		q.msg[n] = true
	}
	return q
}

// ended reports whether every slot has its outcome, and no message is left.
func (m *locking) ended(q queue) bool {
	for n := range q.slot {
		if q.msg[n] || !q.slot[n].final() {
			return false
		}
	}
	return true
}

func (m *locking) check(q queue) {
	acting := 0
	for n := range q.slot {
		for i := range q.w {
			if q.w[i].duty[n].step != handles {
				continue
			}
			acting++
			if q.slot[n].state != running || q.slot[n].node != uint8(i) {
				m.violate(actsBeside)
			}
			if !q.lock.holds(n) {
				m.violate(withoutPlace)
			}
		}
		if !q.msg[n] && !q.slot[n].final() {
			m.violate(ackedEarly)
		}
	}
	if acting > 1 {
		m.violate(besideEachOther)
	}
}

func (m *locking) then(label string, q queue, live bool, change func(*queue)) {
	change(&q)
	q.same()
	m.emit(label, q, live)
}

func (m *locking) successors(q queue, emit func(label string, next queue, live bool)) {
	m.emit = emit
	m.lates(q)
	for i := range q.w {
		if q.w[i] != (porter{}) {
			m.then("crash", q, false, func(q *queue) { q.crash(i) })
		}
		m.lockWrite(q, i)
		for n := range q.slot {
			m.work(q, i, n)
		}
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

// lockWrite stores the worker's write of the lock, and then answers it.
func (m *locking) lockWrite(q queue, i int) {
	t := q.w[i].turn
	if !t.under {
		return
	}
	if !t.landed {
		m.then("a lock is written", q, true, func(q *queue) {
			w := &q.w[i]
			w.turn.landed = true
			q.putLock(t.next, m.writeAnywhere)
			w.turn.last = true
		})
		return
	}
	m.then("a lock is answered", q, true, func(q *queue) {
		w := &q.w[i]
		w.memory, w.remembers, w.current, w.turn = t.next, true, t.last, turn{}
		switch d := &w.duty[t.slot]; d.step {
		case asks:
			d.step, d.place = looked, t.place
		case isLeaving:
			*d = duty{}
		}
	})
}

// work makes the steps of worker i that concern slot n.
func (m *locking) work(q queue, i, n int) {
	d := q.w[i].duty[n]
	switch d.step {
	case away:
		m.deliver(q, i, n)
	case looked:
		m.decide(q, i, n)
	case parked:
		m.then("its turn may have come", q, true, func(q *queue) { q.look(i, n) })
		m.then("a parked slot is given back", q, false, func(q *queue) { q.w[i].duty[n] = duty{} })
	case claims, completes:
		m.answer(q, i, n)
	case handles:
		for _, res := range []core.Result{{}, {Err: errAgain}} {
			m.then("the handler ends", q, true, func(q *queue) {
				d := &q.w[i].duty[n]
				d.step, d.write = completes, m.complete(n, q.slot[n], res)
				if m.leaveEarly {
					q.putLock(m.left(q.lock, n), false)
				}
			})
		}
	case leaves:
		if !q.w[i].turn.under {
			m.then("a place is left", q, true, func(q *queue) { m.leave(q, i, n) })
		}
	}
}

// look reads the record at the leader.
func (q *queue) look(i, n int) {
	q.w[i].duty[n] = duty{step: looked, seen: q.slot[n], last: true}
}

// deliver delivers the message. At a first delivery the worker does not read the record.
func (m *locking) deliver(q queue, i, n int) {
	if !q.msg[n] {
		return
	}
	m.then("delivered again", q, true, func(q *queue) { q.look(i, n) })
	m.then("delivered", q, true, func(q *queue) {
		q.w[i].duty[n] = duty{step: looked, last: q.slot[n].state == nothing}
	})
}

func (m *locking) decide(q queue, i, n int) {
	d := q.w[i].duty[n]
	ask := decision{n: n, seen: d.seen, place: d.place, self: uint8(i)}
	a := m.decision(ask)
	if a.action == core.Prove {
		if d.seen.node != gone {
			m.then("its owner lives", q, true, func(q *queue) { q.w[i].duty[n] = duty{} })
			return
		}
		ask.dead = true
		a = m.decision(ask)
	}
	switch a.action {
	case core.Ack:
		m.then("acknowledged", q, true, func(q *queue) { q.msg[n] = false; q.w[i].duty[n] = duty{} })
	case core.Wait:
		m.then("parked", q, true, func(q *queue) { q.w[i].duty[n] = duty{step: parked} })
	case core.Enter:
		if !q.w[i].turn.under {
			m.then("asks for a place", q, true, func(q *queue) { m.enter(q, i, n) })
		}
	case core.Start, core.End:
		m.then("claims", q, true, func(q *queue) {
			d := &q.w[i].duty[n]
			if !d.last {
				*d = duty{} // a conflict: a later delivery decides again
				return
			}
			d.step, d.write, d.place, d.seen = claims, a.slot, unasked, slot{}
		})
	}
}

// enter asks for a place in the lock, as the worker remembers it, or else as it is.
func (m *locking) enter(q *queue, i, n int) {
	w := &q.w[i]
	d, view, current := &w.duty[n], q.lock, true
	if w.remembers {
		view, current = w.memory, w.current
	}
	e := m.entry(entrant{n, view, d.seen, m.over(q)})
	if e.asked && w.remembers {
		w.forget()
		view, current = q.lock, true
		e = m.entry(entrant{n, view, d.seen, m.over(q)})
	}
	switch {
	case e.next == view:
		d.place = e.place
	case !current && !m.writeAnywhere:
		w.forget() // a conflict
	default:
		d.step = asks
		w.turn = turn{under: true, slot: uint8(n), next: e.next, place: e.place, last: true}
		if m.noAnswer {
			d.step, d.place = looked, e.place
		}
	}
}

// over returns the slots that have ended, as the ledger's leader says.
func (m *locking) over(q *queue) (ended uint8) {
	for n, s := range q.slot {
		switch {
		case s.final() && !m.neverLearns,
			m.deadFrees && s.state == running && s.node == gone,
			m.goneFrees && s.state == nothing:
			ended |= 1 << n
		}
	}
	return ended
}

func (m *locking) leave(q *queue, i, n int) {
	w := &q.w[i]
	view, current := q.lock, true
	if w.remembers {
		view, current = w.memory, w.current
	}
	next := m.left(view, n)
	switch {
	case next == view:
		w.duty[n] = duty{}
	case !current && !m.leaveAnywhere:
		w.forget()
	case m.leaveAnywhere:
		q.putLock(next, false)
		w.duty[n] = duty{}
	default:
		w.duty[n].step = isLeaving
		w.turn = turn{under: true, slot: uint8(n), next: next, last: true}
	}
}

// answer stores a write of the ledger, and then answers it.
func (m *locking) answer(q queue, i, n int) {
	d := q.w[i].duty[n]
	switch {
	case !d.landed && !d.last:
		m.then("a completion is refused", q, true, func(q *queue) { q.w[i].duty[n] = duty{} })
	case !d.landed:
		m.then("a write lands", q, true, func(q *queue) {
			d := &q.w[i].duty[n]
			d.landed = true
			q.put(n, d.write)
			d.last = true
		})
	case d.write.final():
		m.then("an outcome is answered", q, true, func(q *queue) {
			q.msg[n] = false
			q.w[i].duty[n] = duty{step: leaves}
		})
	case d.step == claims && d.last:
		m.then("a claim is won", q, true, func(q *queue) { q.w[i].duty[n] = duty{step: handles, last: true} })
	default:
		m.then("given back", q, true, func(q *queue) { q.w[i].duty[n] = duty{} })
	}
}

// The functions below apply the rules of package core to the states of this world. The clock stands still.

func (m *locking) job() *plans.Entry {
	return &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: "report", Retry: job.Retry{Attempts: m.attempts}, Overlap: m.policy}}}
}

func (m *locking) delivery(n int) core.Delivery {
	s := slotAt(int64(n))
	return core.Delivery{Message: core.Message{Slot: s, Due: s.At}, Queue: "default", Published: s.At, Count: 1}
}

func (m *locking) view(n int, seen slot, self uint8) core.View {
	v := core.View{Now: epoch.Add(time.Hour), Self: nodeName(self), Horizon: job.DefaultHorizon, Entry: m.job(), Handles: true, Revision: 1}
	if seen.state != nothing {
		rec := m.record(n, seen)
		v.Record = &rec
	}
	return v
}

func (m *locking) record(n int, s slot) job.Record {
	r := newRules(m.attempts)
	rec := r.record(s)
	rec.Slot = slotAt(int64(n))
	return rec
}

func (m *locking) complete(n int, s slot, res core.Result) slot {
	s.state = running
	return abstract(core.Complete(m.record(n, s), 1, epoch.Add(time.Hour), job.DefaultHorizon, res))
}

var placeOf = map[placed]core.AdmissionKind{unasked: core.AdmissionUnasked, held: core.AdmissionGranted, waits: core.AdmissionQueued, barred: core.AdmissionSkipped}

func (m *locking) decision(q decision) answer {
	if a, known := m.decisions[q]; known {
		return a
	}
	v := m.view(q.n, q.seen, q.self)
	v.OwnerDead, v.Admission.Kind = q.dead, placeOf[q.place]
	if m.claimFirst {
		v.Admission.Kind = core.AdmissionGranted
	}
	s := core.Decide(m.delivery(q.n), v)
	a := answer{action: s.Action}
	if s.Action == core.Start || s.Action == core.End {
		if s.Record.State == job.Skipped {
			s.Record.State = job.Failed // an outcome, and no run
		}
		a.slot = abstract(s.Record)
	}
	m.decisions[q] = a
	return a
}

func (m *locking) entry(q entrant) entry {
	if e, known := m.entries[q]; known {
		return e
	}
	e, ended := entry{}, map[job.Slot]bool{}
	for {
		next, place, ask := m.lock(q.lock).Enter(core.NewEntrant(m.delivery(q.n), m.view(q.n, q.seen, 0)), ended)
		if len(ask) == 0 {
			e.next = m.unlock(next)
			for p, kind := range placeOf {
				if kind == place.Kind {
					e.place = p
				}
			}
			break
		}
		e.asked = true
		for _, a := range ask {
			ended[a.Slot] = q.ended&(1<<index(a.Slot)) != 0
		}
	}
	m.entries[q] = e
	return e
}

func (m *locking) left(l lock, n int) lock {
	next, _ := m.lock(l).Leave(slotAt(int64(n)), 1)
	return m.unlock(next)
}

func index(s job.Slot) int { return int(s.At.Sub(epoch) / time.Minute) }

func (m *locking) lock(l lock) core.Lock {
	var full core.Lock
	for n := range maxSlots {
		one := core.NewEntrant(m.delivery(n), m.view(n, slot{}, 0)).LockSlot
		if l.holds(n) {
			full.Holders = append(full.Holders, one)
		}
		if l.waiting&(1<<n) != 0 {
			full.Waiting = append(full.Waiting, one)
		}
	}
	if l.newest > 0 {
		full.Newest = slotAt(int64(l.newest - 1)).At
	}
	return full
}

func (m *locking) unlock(full core.Lock) (l lock) {
	for _, h := range full.Holders {
		l.holders |= 1 << index(h.Slot)
	}
	for _, h := range full.Waiting {
		l.waiting |= 1 << index(h.Slot)
	}
	if !full.Newest.IsZero() {
		l.newest = uint8(index(job.Slot{At: full.Newest})) + 1
	}
	if !slices.IsSortedFunc(full.Waiting, func(a, b core.LockSlot) int { return a.At.Compare(b.At) }) {
		panic(fmt.Sprintf("those that wait are not in order: %+v", full))
	}
	return l
}
