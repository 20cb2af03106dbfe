package model

import (
	"slices"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// ask carries out a request to the lock, up to its write. The lock is that which the worker remembers, or
// that of the broker if the request needs one that was just read. The worker reads the line and the records
// in the same step: each of them is read after the lock, and the write is refused if the lock has changed.
func (m *locking) ask(q *queue, i, n int, step stage) {
	w := &q.w[i]
	w.duty[n].step = step
	if w.remembers {
		if sure := m.compute(q, i, n, w.memory, false); sure {
			return
		}
	}
	w.memory, w.remembers, w.current = q.lock, true, true
	m.compute(q, i, n, q.lock, true)
}

// compute computes the write for a request, and its verdict. It returns false if the lock has to be read
// first.
func (m *locking) compute(q *queue, i, n int, seen lock, fresh bool) (sure bool) {
	w := &q.w[i]
	d, full, unsure := &w.duty[n], m.lock(seen), false
	t := turn{slot: uint8(n), again: false}
	tend := false
	switch d.step {
	case asks:
		e := core.NewEntrant(m.delivery(n, d.took > 0), m.view(n, d.seen, uint8(i)))
		if m.oldStay {
			e.Author = e.Node
		}
		for {
			next, verdict := full.Enter(e)
			refused := verdict.Kind == core.AdmissionSkipped || verdict.Kind == core.AdmissionReplaced
			if refused && !fresh {
				return false
			}
			if h, holds := full.Holder(verdict.InWay); refused && holds && m.policy == job.OverlapSkip && m.over(q, index(h.Slot)) {
				full = full.Leave(h.Slot, h.Node)
				continue
			}
			unsure = verdict.Kind == core.AdmissionGranted && next.Same(full) && !e.GoesOn() && !m.trustsMemory ||
				verdict.Kind == core.AdmissionQueued && d.again && !m.forgetsHolder
			full, t.place = next, placeNamed[verdict.Kind]
			break
		}
	case looks:
		if !fresh {
			return false
		}
		full = full.Stood(uint64(d.entry) + 1)
		tend = core.Supersedes(m.policy)
		if full.Holds(slotAt(int64(n))) && !m.forgetsHolder {
			t.calls |= 1 << n
		}
	case isLeaving:
		own := full.Leave(slotAt(int64(n)), nodeName(uint8(i)))
		switch {
		case d.own && own.Same(full) && !fresh, !d.own && !fresh:
			return false
		case d.own && !own.Same(full):
			full = own
		case d.own && m.ownOnly:
		default:
			if h, holds := full.Holder(slotAt(int64(n))); holds && (m.foundBefore || m.over(q, n)) {
				full = full.Leave(h.Slot, h.Node)
			}
		}
	}
	if full.Waiting && (tend || len(full.Holders) < 1) {
		full = m.callFromLine(q, &t, full)
	}
	t.next = m.unlock(full)
	if full.Same(m.lock(seen)) {
		if unsure && !fresh {
			return false
		}
		t.phase, t.next = answered, lock{}
		w.turn = t
		m.finish(w)
		return true
	}
	if !w.current && !m.writeAnywhere {
		return false // a conflict
	}
	t.phase, t.last = sent, w.current
	w.turn = t
	if m.noAnswer && d.step == asks {
		d.step, d.place = looked, t.place
	}
	return true
}

// over reports whether the slot has its outcome, as the ledger's leader says.
func (m *locking) over(q *queue, n int) bool {
	return q.slot[n].final() || m.deadFrees && q.slot[n].state == running && q.slot[n].node == gone
}

// callFromLine gives the free place to the first slot of the line. Those that have to end get a message.
func (m *locking) callFromLine(q *queue, t *turn, full core.Lock) core.Lock {
	first := int(full.Line) - 1
	first = max(first, 0)
	type entry struct {
		core.Entry
		at int
	}
	var entries []entry
	for at := first; at < maxEntries && q.line[at] != 0; at++ {
		s := slotAt(int64(q.line[at] - 1))
		entries = append(entries, entry{core.Entry{Slot: s, At: s.At, OnTime: core.Supersedes(m.policy), Sequence: uint64(at) + 1}, at})
	}
	inTurn := slices.Clone(entries)
	slices.SortStableFunc(inTurn, func(a, b entry) int { return a.At.Compare(b.At) })
	passed := map[int]bool{}
	for _, e := range inTurn {
		n := index(e.Slot)
		displaced := full.Displaced(e.Entry, m.policy)
		switch {
		case full.Holds(e.Slot):
			passed[e.at] = true
		case !displaced && len(full.Holders) > 0:
		case q.slot[n].state != standing:
			passed[e.at] = true
		case displaced && m.passedUnsent:
			passed[e.at] = true
			t.calls |= 1 << n
		case displaced:
			passed[e.at] = true
			if q.msg[n] == 0 && !q.offer(n) { // a message of the same ID is folded
				m.violate(outOfRoom)
			}
		default:
			passed[e.at] = true
			full = full.Call(e.Entry, epoch)
			t.calls |= 1 << n
		}
	}
	for _, e := range entries {
		if !passed[e.at] {
			full.Line = e.Sequence
			return full
		}
	}
	full.Waiting, full.Line = false, uint64(first+len(entries))+1
	t.again = !m.noLookAgain
	return full
}

// turn makes the steps of a worker's write of the lock, and of what follows from it.
func (m *locking) turn(q queue, i int) {
	switch q.w[i].turn.phase {
	case sent:
		m.then("a lock is written", q, true, func(q *queue) {
			next := q.w[i].turn.next
			q.w[i].turn.phase, q.w[i].turn.next = answered, lock{}
			q.putLock(next, m.writeAnywhere)
			w := &q.w[i]
			w.memory, w.remembers, w.current = next, true, true
			m.finish(w)
		})
	case answered:
		m.follow(q, i)
	}
}

// finish ends a request after which nothing is to be done.
func (m *locking) finish(w *porter) {
	t := w.turn
	if t.phase != answered || t.calls != 0 || t.again {
		return
	}
	w.turn = turn{}
	switch d := &w.duty[t.slot]; d.step {
	case asks:
		d.step, d.place, d.holds = looked, t.place, d.holds || t.place == held
	case looks, isLeaving:
		d.step = acks
	}
}

// follow does what follows from a request to the lock: first the messages of the slots that were called,
// then another look at the line.
func (m *locking) follow(q queue, i int) {
	switch t := q.w[i].turn; {
	case t.calls != 0:
		for n := range q.slot {
			if t.calls&(1<<n) != 0 {
				m.then("a call is published", q, true, func(q *queue) {
					q.w[i].turn.calls &^= 1 << n
					if !q.offer(n) {
						m.violate(outOfRoom)
					}
					m.finish(&q.w[i])
				})
			}
		}
	case t.again:
		m.then("the line is looked at again", q, true, func(q *queue) { m.lookAgain(q, i) })
	}
}

// lookAgain reads the line after the write that has emptied it.
func (m *locking) lookAgain(q *queue, i int) {
	w := &q.w[i]
	seen := w.memory
	if !w.remembers {
		seen = q.lock
		w.memory, w.remembers, w.current = q.lock, true, true
	}
	full := m.lock(seen)
	t := turn{slot: w.turn.slot, place: w.turn.place}
	first := int(full.Line) - 1
	first = max(first, 0)
	if !full.Waiting && first < maxEntries && q.line[first] != 0 {
		full.Waiting = true
	}
	if full.Waiting {
		full = m.callFromLine(q, &t, full)
	}
	t.next = m.unlock(full)
	t.last = w.current
	switch {
	case t.next == seen:
		t.phase, t.again, t.next = answered, false, lock{}
		w.turn = t
		m.finish(w)
	case !w.current:
		w.forget() // a conflict: the lock is read, and the line looked at again
	default:
		t.phase = sent
		w.turn = t
	}
}
