package model

import "fmt"

const (
	maxSlots = 2
	gone     = 2 // the node of a claim whose incarnation has ended
)

// queue is the other small world: slots of one job that may not run beside each
// other, its lock, and two workers. That a claim stands while its owner acts, and
// falls only when it has ended, is what the first world shows; here an incarnation
// that ends does so at once.
type queue struct {
	slot [maxSlots]slot // what the ledger says; node: a worker, or gone
	msg  [maxSlots]bool
	lock lock

	// late are writes that no worker waits for any more and that can still be stored.
	late     [maxSlots]slot
	lateLock lock
	isLate   bool

	w [2]porter
}

// lock is what matters of a core.Lock: sets of slots, whose order is theirs, and
// the newest one, plus one.
type lock struct{ holders, waiting, newest uint8 }

func (l lock) holds(i int) bool { return l.holders&(1<<i) != 0 }

// porter is one process, with as many slots in hand as come.
type porter struct {
	duty [maxSlots]duty

	// memory is the lock as its last own write left it; current: it is so still.
	memory             lock
	remembers, current bool

	// turn is the one change of the lock that the process has under way.
	turn turn
}

// duty is one slot in hand.
type duty struct {
	step   stage
	seen   slot // its record, as it was looked at
	place  placed
	write  slot
	landed bool
	last   bool // the revision that it stands on is still the ledger's last
}

type stage uint8

const (
	away      stage = iota
	looked          // the record is known, or taken to be none
	parked          // it waits for its turn
	asks            // for a place
	claims          // or writes an outcome without a run
	handles         // the handler runs
	completes       // the attempt's end is being written
	leaves          // the outcome is written, and the message acknowledged
	isLeaving       // the lock is being written
)

type placed uint8

const (
	unasked placed = iota
	held
	waits
	barred
)

type turn struct {
	under  bool // way
	slot   uint8
	next   lock
	place  placed
	landed bool
	last   bool // the revision that it names, or made, is still the lock's last
}

// crash ends the incarnation with all memory. What it had under way may land.
func (q *queue) crash(i int) {
	w := &q.w[i]
	for n := range w.duty {
		d := &w.duty[n]
		if (d.step == claims || d.step == completes) && !d.landed && d.last && q.late[n].state == nothing {
			q.late[n] = d.write
		}
	}
	if w.turn.under && !w.turn.landed && w.turn.last && !q.isLate {
		q.lateLock, q.isLate = w.turn.next, true
	}
	*w = porter{}
	disown := func(s *slot) {
		if s.state == running && s.node == uint8(i) {
			s.node = gone
		}
	}
	for n := range q.slot {
		disown(&q.slot[n])
		disown(&q.late[n])
		for o := range q.w {
			disown(&q.w[o].duty[n].seen)
		}
	}
}

// put is a write of a slot's record that is stored: all others that name an older
// revision have lost, and learn it at once.
func (q *queue) put(n int, x slot) {
	q.slot[n], q.late[n] = x, slot{}
	for i := range q.w {
		d := &q.w[i].duty[n]
		d.last = false
		if (d.step == claims || d.step == completes) && !d.landed {
			*d = duty{}
		}
	}
}

// putLock is the same for the lock. plain: other writes name no revision.
func (q *queue) putLock(l lock, plain bool) {
	q.lock, q.lateLock, q.isLate = l, lock{}, false
	for i := range q.w {
		w := &q.w[i]
		w.current = false
		w.turn.last = false
		if w.turn.under && !w.turn.landed && !plain {
			w.again()
		}
	}
}

// again has a change of the lock that was refused begun anew, from a fresh read.
func (w *porter) again() {
	d := &w.duty[w.turn.slot]
	switch d.step {
	case asks:
		d.step = looked
	case isLeaving:
		d.step = leaves
	}
	w.turn = turn{}
	w.forget()
}

func (w *porter) forget() { w.memory, w.remembers, w.current = lock{}, false, false }

// same has states be one that differ in which worker is which.
func (q *queue) same() {
	a, b := q.w[0].rank(), q.w[1].rank()
	if !less(b, a) {
		return
	}
	q.w[0], q.w[1] = q.w[1], q.w[0]
	swap := func(s *slot) {
		if s.state == running && s.node < gone {
			s.node = 1 - s.node
		}
	}
	for n := range q.slot {
		swap(&q.slot[n])
		swap(&q.late[n])
		for i := range q.w {
			swap(&q.w[i].duty[n].seen)
			swap(&q.w[i].duty[n].write)
		}
	}
}

type rank [4]uint64

func less(a, b rank) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// rank is what a worker has and does, without names.
func (w porter) rank() (r rank) {
	n := 0
	bit := func(b bool) {
		r[n/64] <<= 1
		if b {
			r[n/64] |= 1
		}
		n++
	}
	bits := func(v uint8) {
		for i := range 4 {
			bit(v&(1<<i) != 0)
		}
	}
	for _, d := range w.duty {
		bits(uint8(d.step))
		bits(uint8(d.seen.state))
		bits(d.seen.attempt)
		bits(uint8(d.place))
		bits(uint8(d.write.state))
		bits(d.write.attempt)
		bit(d.landed)
		bit(d.last)
	}
	for _, l := range []lock{w.memory, w.turn.next} {
		bits(l.holders)
		bits(l.waiting)
		bits(l.newest)
	}
	bits(w.turn.slot)
	bits(uint8(w.turn.place))
	for _, b := range []bool{w.remembers, w.current, w.turn.under, w.turn.landed, w.turn.last} {
		bit(b)
	}
	return r
}

func (q queue) String() string {
	text := fmt.Sprintf("slots %+v msg %v lock %+v late %v %v %v", q.slot, q.msg, q.lock, q.late, q.lateLock, q.isLate)
	for i, w := range q.w {
		text += fmt.Sprintf("\n    worker %d: %+v", i, w)
	}
	return text
}
