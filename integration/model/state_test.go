package model

import "fmt"

const (
	maxWorkers = 3
	maxNames   = 2 * maxWorkers // each worker lives under one name and may have left another behind
)

// state is everything of the small world that the exploration knows. Revisions
// are not in it: a worker that holds one only needs to know whether it is still the
// last, and that is one bit. So the world is finite, however long it lives.
type state struct {
	slot slot // what the ledger says
	msg  bool // the message is in the stream

	keys [maxNames]key

	// quiet is for how many ticks each key has stood still. No node can have seen it
	// stand still for longer, and a node that saw less can only do less: so one number
	// stands for all that watch.
	quiet [maxNames]uint8

	// late are the ledger writes that no worker waits for any more and that can still
	// land, by the name of their writer.
	late [maxNames]slot

	// What the invariants are about: incarnations with a won claim for which they
	// started no handler yet, whether the slot's present attempt was started, and
	// completions that were stored as successes.
	unused    names
	begun     bool
	successes uint8

	w [maxWorkers]worker
}

// slot is what matters of a job.Record.
type slot struct {
	state   slotState
	node    uint8 // of a running one
	attempt uint8
}

type slotState uint8

const (
	nothing slotState = iota
	running
	retrying
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
	id, gen uint8 // its present name is 2*id+gen
	up      bool  // it has an incarnation
	frozen  bool

	// trust is how many ticks the incarnation still trusts itself; open, that a
	// heartbeat was sent age ticks ago and is not answered yet.
	trust, age uint8
	open       bool

	task   task
	write  slot  // of a claim or a completion
	landed bool  // the write was stored; its answer is under way
	last   bool  // the revision that the task stands on is still the ledger's last
	ending uint8 // ticks in which a cancelled handler ends
}

func (w worker) name() uint8 { return 2*w.id + w.gen }

// acting: its handler can have an effect.
func (w worker) acting() bool {
	return !w.frozen && (w.task == handling || w.task == endingHandler)
}

type task uint8

const (
	idle          task = iota
	claiming           // a claim, or an outcome without a run
	handling           // the handler runs
	completing         // the attempt's end is being written
	endingHandler      // the handler's context has ended, the handler not yet
)

// rest leaves the worker without a task.
func (w *worker) rest() {
	w.task, w.write, w.landed, w.last, w.ending = idle, slot{}, false, false, 0
}

// over reports whether nothing can happen any more but that the message goes:
// the slot has its outcome, so that every write to it would be refused.
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

// tidy forgets what can have no effect any more, so that states which differ in
// it only are one: names that nothing refers to, and which worker is which.
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

// sort orders the workers, and each one's two names, in a way that does not
// depend on what they are called.
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

// refers reports whether the name is taken: something can still come of it.
func (s *state) refers(n uint8) bool { return s.keys[n] != absent || s.late[n].state != nothing }

// rank is a number of what a worker is and does, without names.
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

// rename calls every name by another one.
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
