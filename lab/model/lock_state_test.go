package model

import "fmt"

const (
	maxSlots   = 2
	maxEntries = 4
	maxOffers  = 3 // messages of one slot in the queue at once, besides its first one

	// Nodes besides the two workers.
	nobody   = 2 // a place that was given to a slot in the line
	gone     = 3 // an incarnation that has ended
	operator = 4
)

// queue is one state of the other small world: slots of one job that must not run at the same time, the
// job's lock and line, and two workers. The first world shows that a claim holds as long as its owner
// acts. So an incarnation that ends does so at once here, with its handler.
type queue struct {
	slot [maxSlots]slot // the records in the ledger

	// msg are the messages of each slot, as a set. Message 0 is the first one. It is fresh until it is
	// delivered: then the worker does not read the record before.
	msg   [maxSlots]uint8
	fresh [maxSlots]bool

	lock lock
	line [maxEntries]uint8 // the entries of the line: the number of a slot, plus one; 0: none

	// late and lateLock are writes that may still be stored although no worker waits for them any more.
	// isLate: there is a lateLock.
	late     [maxSlots]slot
	lateLock lock
	isLate   bool

	cancels, reopens uint8 // what the operator may still do

	w [2]porter
}

// lock has the members of a core.Lock that matter here.
type lock struct {
	place   [maxSlots]uint8 // the node of the slot's place, plus one; 0: it has none
	waiting bool
	line    uint8 // an index of queue.line
	newest  uint8 // the number of the newest slot, plus one
}

func (l lock) holds(n int) bool { return l.place[n] != 0 }

func (l lock) holders() (n int) {
	for _, p := range l.place {
		if p != 0 {
			n++
		}
	}
	return n
}

// porter is one worker, which may hold messages of all slots.
type porter struct {
	duty [maxSlots]duty

	// If remembers is true, memory is the lock as the worker last read or wrote it. current: it is still
	// that one.
	memory             lock
	remembers, current bool

	// turn is the worker's request to the lock. It carries out one at a time.
	turn turn
}

// duty is what a worker does for one slot.
type duty struct {
	step   stage
	took   uint8 // the message
	again  bool  // the message is not the first one, or was delivered before
	seen   slot  // the slot's record, as the worker has read it
	place  placed
	holds  bool // the worker has entered the slot
	own    bool // the worker has entered the slot, and has written its outcome itself
	write  slot
	landed bool
	last   bool  // the revision that the worker has read or written is still the ledger's last one
	entry  uint8 // the slot's entry in the line
}

type stage uint8

const (
	away      stage = iota
	looked          // the record was read, or is assumed to be absent
	asks            // the slot asks for a place
	claims          // a claim, an outcome without a run, or the record of a slot that has to stand is being written
	puts            // the entry is put into the line
	stood           // the lock has to be looked at again
	looks           // the lock is being looked at again
	handles         // the handler runs
	completes       // the attempt's end is being written
	leaves          // the slot has its outcome, and has to leave its place
	isLeaving       // the slot is leaving its place
	acks            // the message is acked
)

type placed uint8

const (
	unasked placed = iota
	held
	waits
	barred
)

// turn is one request to the lock, and its write.
type turn struct {
	phase phase
	slot  uint8
	next  lock
	place placed
	calls uint8 // the slots that get a message after the write
	again bool  // the line has to be looked at once more
	last  bool  // the revision that the write names, or has made, is still the lock's last one
}

type phase uint8

const (
	idleTurn phase = iota
	sent           // the write is under way
	answered       // the write was stored, or none was needed; what follows is to be done
)

// offer puts a message of the slot into the queue. It returns false if there is no room, which ends the
// exploration there.
func (q *queue) offer(n int) bool {
	for b := uint8(1); b <= maxOffers; b++ {
		if q.msg[n]&(1<<b) == 0 {
			q.msg[n] |= 1 << b
			return true
		}
	}
	return false
}

// stands returns the index of a new entry, and false if there is no room.
func (q *queue) put1(n int) (uint8, bool) {
	for i := range q.line {
		if q.line[i] == 0 {
			q.line[i] = uint8(n) + 1
			return uint8(i), true
		}
	}
	return 0, false
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
	if w.turn.phase == sent && w.turn.last && !q.isLate {
		q.lateLock, q.isLate = w.turn.next, true
	}
	*w = porter{}
	q.rename(func(node uint8) uint8 {
		if node == uint8(i) {
			return gone
		}
		return node
	})
}

// rename gives nodes other names, wherever they are named.
func (q *queue) rename(to func(uint8) uint8) {
	record := func(s *slot) {
		if s.state == running || s.state == retrying {
			s.node = to(s.node)
		}
	}
	places := func(l *lock) {
		for n, p := range l.place {
			if p != 0 {
				l.place[n] = to(p-1) + 1
			}
		}
	}
	for n := range q.slot {
		record(&q.slot[n])
		record(&q.late[n])
		for i := range q.w {
			record(&q.w[i].duty[n].seen)
			record(&q.w[i].duty[n].write)
		}
	}
	places(&q.lock)
	places(&q.lateLock)
	for i := range q.w {
		places(&q.w[i].memory)
		places(&q.w[i].turn.next)
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
			d.refused(x)
		}
	}
}

// refused begins another round after a conflict: the worker reads the record. If the result of an attempt is
// refused, the message is given back.
func (d *duty) refused(stored slot) {
	if d.step == completes {
		*d = duty{}
		return
	}
	*d = duty{step: looked, seen: stored, last: true, took: d.took, again: d.again, holds: d.holds}
}

// putLock does the same for the lock. If plain is true, other writes name no revision, so they are not lost.
func (q *queue) putLock(l lock, plain bool) {
	q.lock, q.lateLock, q.isLate = l, lock{}, false
	for i := range q.w {
		w := &q.w[i]
		w.current, w.turn.last = false, false
		if w.turn.phase == sent && !plain {
			w.begin()
		}
	}
}

// begin begins the request to the lock anew. The worker reads the lock before.
func (w *porter) begin() {
	d := &w.duty[w.turn.slot]
	switch d.step {
	case asks:
		d.step = looked
	case looks:
		d.step = stood
	case isLeaving:
		d.step = leaves
	}
	again := w.turn.again && w.turn.phase == answered
	w.turn = turn{}
	w.turn.again = again
	w.forget()
}

func (w *porter) forget() { w.memory, w.remembers, w.current = lock{}, false, false }

// same removes what can have no effect any more, and orders the two workers. So states that differ only in
// these are one state.
func (q *queue) same() {
	q.dropEntries()
	a, b := q.w[0].rank(), q.w[1].rank()
	if !less(b, a) {
		return
	}
	q.w[0], q.w[1] = q.w[1], q.w[0]
	q.rename(func(node uint8) uint8 {
		if node < 2 {
			return 1 - node
		}
		return node
	})
}

// dropEntries removes the entries before all positions that something still refers to.
func (q *queue) dropEntries() {
	lines := []*uint8{&q.lock.line}
	if q.isLate {
		lines = append(lines, &q.lateLock.line)
	}
	for i := range q.w {
		w := &q.w[i]
		if w.remembers {
			lines = append(lines, &w.memory.line)
		}
		if w.turn.phase == sent {
			lines = append(lines, &w.turn.next.line)
		}
		for n := range w.duty {
			if s := w.duty[n].step; s == stood || s == looks {
				lines = append(lines, &w.duty[n].entry)
			}
		}
	}
	first := *lines[0]
	for _, l := range lines {
		first = min(first, *l)
	}
	if first == 0 {
		return
	}
	for _, l := range lines {
		*l -= first
	}
	var left [maxEntries]uint8
	copy(left[:], q.line[first:])
	q.line = left
}

type rank [64]uint8

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
	add := func(values ...uint8) { n += copy(r[n:], values) }
	bit := func(b bool) uint8 {
		if b {
			return 1
		}
		return 0
	}
	for _, d := range w.duty {
		add(uint8(d.step), d.took, bit(d.again), uint8(d.seen.state), d.seen.attempt, uint8(d.place), bit(d.own), bit(d.holds),
			uint8(d.write.state), d.write.attempt, bit(d.landed), bit(d.last), d.entry)
	}
	for _, l := range []lock{w.memory, w.turn.next} {
		for _, p := range l.place {
			add(bit(p != 0))
		}
		add(bit(l.waiting), l.line, l.newest)
	}
	t := w.turn
	add(bit(w.remembers), bit(w.current), uint8(t.phase), t.slot, uint8(t.place), t.calls, bit(t.again), bit(t.last))
	return r
}

func (q queue) String() string {
	text := fmt.Sprintf("slots %+v msg %b fresh %v lock %+v line %v late %v %v %v", q.slot, q.msg, q.fresh, q.lock, q.line, q.late, q.lateLock, q.isLate)
	for i, w := range q.w {
		text += fmt.Sprintf("\n    worker %d: %+v", i, w)
	}
	return text
}
