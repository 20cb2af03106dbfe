package model

import "fmt"

const (
	maxSlots = 2
	gone     = 2 // the node of a claim whose incarnation has ended
)

// queue is one state of the other small world: slots of one job that must not run at the same time, the
// job's lock, and two workers. The first world shows that a claim holds as long as its owner acts. So an
// incarnation that ends does so at once here, with its handler.
type queue struct {
	slot [maxSlots]slot // the records in the ledger; node: a worker, or gone
	msg  [maxSlots]bool
	lock lock

	// late and lateLock are writes that may still be stored although no worker waits for them any more.
	// isLate: there is a lateLock.
	late     [maxSlots]slot
	lateLock lock
	isLate   bool

	w [2]porter
}

// lock has the members of a core.Lock that matter here: the slots that hold a place and those that wait, as
// sets, and the number of the newest slot, plus one.
type lock struct{ holders, waiting, newest uint8 }

func (l lock) holds(i int) bool { return l.holders&(1<<i) != 0 }

// porter is one worker, which may hold the messages of all slots.
type porter struct {
	duty [maxSlots]duty

	// If remembers is true, memory is the lock as the worker's last write left it. current: it is still
	// that one.
	memory             lock
	remembers, current bool

	// turn is the worker's write of the lock that is not answered yet. A worker has at most one.
	turn turn
}

// duty is what a worker does for one slot.
type duty struct {
	step   stage
	seen   slot // the slot's record, as the worker has read it
	place  placed
	write  slot
	landed bool
	last   bool // the revision that the worker has read or written is still the ledger's last one
}

type stage uint8

const (
	away      stage = iota
	looked          // the record was read, or is assumed to be absent
	parked          // the slot waits for a place
	asks            // a write of the lock that asks for a place is not answered
	claims          // a claim, or an outcome without a run, is being written
	handles         // the handler runs
	completes       // the attempt's end is being written
	leaves          // the outcome is written, and the message acked
	isLeaving       // a write of the lock without the slot is not answered
)

type placed uint8

const (
	unasked placed = iota
	held
	waits
	barred
)

type turn struct {
	under  bool // there is such a write
	slot   uint8
	next   lock
	place  placed
	landed bool
	last   bool // the revision that the write names, or has made, is still the lock's last one
}

// crash ends the incarnation and all that it remembers. Its writes may still land.
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

// put stores a write of a slot's record. All other writes name an older revision, so they are lost, and
// their writers learn that at once.
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

// putLock does the same for the lock. If plain is true, other writes name no revision, so they are not lost.
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

// again begins a change of the lock anew that was refused. The worker reads the lock again before.
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

// same orders the two workers, so that states that differ only in their order are one state.
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

// rank encodes the state of a worker, without names.
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
