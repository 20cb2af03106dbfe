package model

import "fmt"

const (
	maxWorkers = 3
	maxNames   = 2 * maxWorkers // each worker has one name, and something may still refer to an earlier one
)

// state is one state of the small world. It has no revisions: of a revision, a worker needs to know only
// whether it is still the last one, which is one bit. So the number of states is finite.
type state struct {
	slot slot // the slot's record in the ledger
	msg  bool // the message is in the stream

	keys [maxNames]key

	// quiet is for how many ticks each key has not changed. No node can have observed that for longer,
	// and a node that has observed it for less time can do less. So one number is enough for all nodes.
	quiet [maxNames]uint8

	// late are the writes of the ledger that may still land although no worker waits for them any more,
	// by the name of the writer.
	late [maxNames]slot

	// Only the invariants use these.
	unused    names // incarnations that have won a claim and not started a handler for it
	begun     bool  // a handler was started for the slot's current attempt
	successes uint8 // completions that were stored as a success

	w [maxWorkers]worker
}

// slot has the members of a job.Record that matter here.
type slot struct {
	state   slotState
	node    uint8 // the owner, if the slot is running
	attempt uint8
}

type slotState uint8

const (
	nothing slotState = iota
	running
	retrying
	standing // only in the world of the lock: it waits in its job's line
	succeeded
	failed
)

func (s slot) final() bool { return s.state >= succeeded }

type key uint8

const (
	absent key = iota
	alive
	fenced
	stopped
)

func (k key) dead() bool { return k == fenced || k == stopped }

// names is a set of names.
type names uint8

func (n names) has(name uint8) bool { return n&(1<<name) != 0 }
func (n *names) add(name uint8)     { *n |= 1 << name }
func (n *names) drop(name uint8)    { *n &^= 1 << name }

// worker is one process.
type worker struct {
	id, gen uint8 // its current name is 2*id+gen
	up      bool  // it has an incarnation
	frozen  bool

	// trust is for how many ticks the incarnation still trusts itself. If open is true, a heartbeat was
	// sent age ticks ago, and is not answered yet.
	trust, age uint8
	open       bool

	task   task
	write  slot  // of a claim or a completion
	landed bool  // the write was stored, and not answered yet
	last   bool  // the revision that the task names, or has written, is still the ledger's last one
	ending uint8 // ticks within which a handler whose context has ended returns
}

func (w worker) name() uint8 { return 2*w.id + w.gen }

// acting reports whether the worker's handler can have an effect.
func (w worker) acting() bool {
	return !w.frozen && (w.task == handling || w.task == endingHandler)
}

type task uint8

const (
	idle          task = iota
	claiming           // a claim, or an outcome without a run, is being written
	handling           // the handler runs
	completing         // the attempt's end is being written
	endingHandler      // the handler's context has ended, and the handler has not returned
)

// rest leaves the worker without a task.
func (w *worker) rest() {
	w.task, w.write, w.landed, w.last, w.ending = idle, slot{}, false, false, 0
}

// over reports whether only the removal of the message can still happen: the slot has its outcome, so
// every write to it would be refused, and no handler acts.
func (s *state) over() bool {
	if !s.slot.final() {
		return false
	}
	for _, w := range s.w {
		if w.acting() {
			return false
		}
	}
	return true
}

// tidy removes what can have no effect any more: names that nothing refers to, and the order of the
// workers. So states that differ only in these are one state.
func (s *state) tidy(workers int) {
	var referred, up names
	for i := range workers {
		w := &s.w[i]
		if w.up {
			up.add(w.name())
		}
		if w.up || w.task == endingHandler {
			referred.add(w.name())
		}
	}
	if s.slot.state == running {
		referred.add(s.slot.node)
	}
	for n := range uint8(2 * workers) {
		if s.late[n].state == running {
			referred.add(n)
		}
	}
	s.unused &= up
	for n := range uint8(2 * workers) {
		if !referred.has(n) {
			s.keys[n] = absent
		}
		if s.keys[n] != alive {
			s.quiet[n] = 0
		}
	}
	s.sort(workers)
}

// sort orders the workers, and the two names of each, in a way that does not depend on the names.
func (s *state) sort(workers int) {
	for i := range workers {
		w, first := &s.w[i], uint8(2*i)
		exchange := w.gen == 1
		if !w.up && w.task != endingHandler {
			exchange = !s.refers(first) && s.refers(first+1)
		}
		w.gen = 0
		if exchange {
			s.rename(func(n uint8) uint8 {
				if n/2 == uint8(i) {
					return n ^ 1
				}
				return n
			})
		}
	}
	for i := 1; i < workers; i++ {
		for j := i; j > 0 && s.rank(j) < s.rank(j-1); j-- {
			s.swap(uint8(j), uint8(j-1))
		}
	}
}

// refers reports whether a key or a late write still has the name.
func (s *state) refers(n uint8) bool { return s.keys[n] != absent || s.late[n].state != nothing }

// rank encodes the state of a worker in a number, without names.
func (s *state) rank(i int) uint64 {
	w := s.w[i]
	bit := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	r := uint64(w.task)
	for _, v := range []uint64{
		bit(w.up), bit(w.frozen), uint64(w.trust), uint64(w.age), bit(w.open), bit(w.landed), bit(w.last),
		uint64(w.ending), uint64(w.write.state), uint64(w.write.attempt), uint64(s.keys[2*i]), uint64(s.keys[2*i+1]), uint64(s.quiet[2*i]),
		bit(s.slot.state == running && s.slot.node/2 == uint8(i)), uint64(s.late[2*i].state),
		uint64(s.late[2*i+1].state), bit(s.unused.has(uint8(2 * i))),
	} {
		r = r<<3 | v
	}
	return r
}

func (s *state) swap(a, b uint8) {
	s.w[a], s.w[b] = s.w[b], s.w[a]
	s.w[a].id, s.w[b].id = a, b
	s.rename(func(n uint8) uint8 {
		switch n / 2 {
		case a:
			return 2*b + n%2
		case b:
			return 2*a + n%2
		}
		return n
	})
}

// rename replaces every name.
func (s *state) rename(to func(uint8) uint8) {
	set := func(from names) (renamed names) {
		for n := range uint8(maxNames) {
			if from.has(n) {
				renamed.add(to(n))
			}
		}
		return renamed
	}
	one := func(x *slot) {
		if x.state == running {
			x.node = to(x.node)
		}
	}
	was := *s
	s.unused = set(was.unused)
	one(&s.slot)
	for n := range uint8(maxNames) {
		s.keys[to(n)], s.quiet[to(n)], s.late[to(n)] = was.keys[n], was.quiet[n], was.late[n]
	}
	for n := range uint8(maxNames) {
		one(&s.late[n])
	}
	for i := range s.w {
		one(&s.w[i].write)
	}
}

func (s state) String() string {
	text := fmt.Sprintf("slot %+v msg %v keys %v quiet %v late %v", s.slot, s.msg, s.keys, s.quiet, s.late)
	for _, w := range s.w {
		if w.up || w.task != idle {
			text += fmt.Sprintf("\n    worker %d: %+v", w.id, w)
		}
	}
	return text
}
