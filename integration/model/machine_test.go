package model

// The invariants, by the names under which a violation is reported.
const (
	twoSuccesses   = "two successful completions"
	finalChanged   = "a final record changed"
	unclaimedStart = "a handler started without a won write"
	untrustedStart = "a handler started after its node's lease"
	actsBeside     = "a handler acts without its claim"
	ackedEarly     = "a message was acknowledged before its slot's end"
	startedTwice   = "an attempt was started twice"
	tooMany        = "more attempts than the job may have"
	noWayOut       = "a state from which no outcome can be reached"
)

// mutation breaks the workers' rules in one way; the zero value breaks none.
type mutation struct {
	completeAnywhere bool // a completion names no revision
	takeOverUnfenced bool // silence for a lease is proof enough
	fenceUnseen      bool // a fence names the revision that is read now
	neverFence       bool
	ackFirst         bool // the message is acknowledged, then the outcome recorded
	ackRefused       bool // a refused completion is acknowledged too
	startOnRead      bool // the handler starts when the ledger reads free
	startOnUnknown   bool // a claim that was not answered is taken for won
	startUntrusted   bool // the lease is not looked at between claim and start
	trustFromAnswer  bool // the lease counts from the heartbeat's answer
	noMargin         bool // a node trusts itself for the whole lease
	keepName         bool // a node goes on under its name after its lease
	releaseStarted   bool // a worker that stops gives a started attempt back uncounted
}

// machine makes the steps of the small world.
type machine struct {
	workers int
	lease   uint8 // in ticks; the margin is the last of them
	*rules
	mutation

	emit func(label string, next state, live bool)
	verdict
}

// verdict is the first invariant that a step, or a state, was found to break.
type verdict string

func (v *verdict) violate(what string) {
	if *v == "" {
		*v = verdict(what)
	}
}

func (v *verdict) broken() string { return string(*v) }

const margin = 1

func (m *machine) trust() uint8 {
	if m.noMargin {
		return m.lease
	}
	return m.lease - margin
}

// start is the world with all workers up, and one message.
func (m *machine) start() state {
	s := state{msg: true}
	for i := range m.workers {
		w := &s.w[i]
		w.id, w.up, w.trust = uint8(i), true, m.trust()
		s.keys[w.name()] = alive
	}
	for i := range maxWorkers {
		s.w[i].id = uint8(i)
	}
	s.tidy(m.workers)
	return s
}

// check looks at one state.
func (m *machine) check(s state) {
	for i := range m.workers {
		if w := s.w[i]; w.acting() && (s.slot.state != running || s.slot.node != w.name()) {
			m.violate(actsBeside)
		}
	}
	if !s.msg && !s.slot.final() {
		m.violate(ackedEarly)
	}
	if s.successes > 1 {
		m.violate(twoSuccesses)
	}
	if int(s.slot.attempt) > m.attempts {
		m.violate(tooMany)
	}
}

// then hands on what change makes of s.
func (m *machine) then(label string, s state, live bool, change func(*state)) {
	change(&s)
	if s.over() && !m.completeAnywhere {
		over := m.start()
		over.slot, over.msg, over.successes = s.slot, s.msg, s.successes
		s = over
	}
	s.tidy(m.workers)
	m.emit(label, s, live)
}

// ended: there is an outcome, and no message left.
func (m *machine) ended(s state) bool { return s.slot.final() && !s.msg }

func (m *machine) successors(s state, emit func(label string, next state, live bool)) {
	m.emit = emit
	if s.over() && !s.msg && !m.completeAnywhere {
		return
	}
	m.ticks(s)
	m.writes(s)
	m.fence(s)
	for i := range uint8(m.workers) {
		w := s.w[i]
		switch {
		case !w.up && w.task == endingHandler:
			m.then("the handler ends", s, true, func(s *state) { s.w[i].rest() })
		case !w.up:
			m.restart(s, i)
		case w.frozen:
			m.then("thaw", s, true, func(s *state) { m.thaw(s, i) })
			m.then("crash", s, false, func(s *state) { s.crash(i) })
		default:
			m.then("crash", s, false, func(s *state) { s.crash(i) })
			m.node(s, i)
			m.work(s, i)
		}
	}
}

// mustMove says that time cannot pass: what happens within a margin is pending.
func (m *machine) mustMove(s state) bool {
	for i := range m.workers {
		w := s.w[i]
		if w.up && !w.frozen && w.trust == 0 {
			return true
		}
	}
	return false
}

// ticks lets time pass. A worker may sleep through the end of its lease; before
// it, one that is frozen is no other than one that is slow.
func (m *machine) ticks(s state) {
	if m.mustMove(s) {
		return
	}
	var sleepy uint8
	for i, w := range s.w {
		if w.up && !w.frozen && w.trust == 1 {
			sleepy |= 1 << i
		}
	}
	m.then("tick", s, true, m.tick)
	for asleep := uint8(1); asleep <= sleepy; asleep++ {
		if asleep&^sleepy == 0 {
			m.then("tick, while some are frozen", s, false, func(s *state) {
				for i := range s.w {
					s.w[i].frozen = s.w[i].frozen || asleep&(1<<i) != 0
				}
				m.tick(s)
			})
		}
	}
}

// tick is for everybody, frozen ones included: their clocks count it.
func (m *machine) tick(s *state) {
	for n, k := range s.keys {
		if k == alive {
			s.quiet[n] = min(s.quiet[n]+1, m.lease)
		}
	}
	for i := range uint8(m.workers) {
		w := &s.w[i]
		if w.task == endingHandler {
			if w.ending--; w.ending == 0 {
				w.rest()
			}
		}
		if !w.up {
			continue
		}
		if w.open {
			w.age = min(w.age+1, m.trust())
		}
		if w.trust > 0 {
			w.trust--
		}
		if w.trust == 0 && !w.frozen {
			s.lose(i)
		}
	}
}

// lose ends the incarnation: what it had under way may land all the same, and a
// handler has the margin to end.
func (s *state) lose(i uint8) {
	w := &s.w[i]
	if w.task == claiming || w.task == completing {
		s.orphan(w)
	}
	handles := w.task == handling
	w.rest()
	if handles && !w.frozen {
		w.task, w.ending = endingHandler, margin
	}
	w.up, w.frozen, w.trust, w.age, w.open = false, false, 0, 0, false
}

// orphan leaves behind a write that its writer will not wait for. One late write
// a name is kept; a second one counts as lost.
func (s *state) orphan(w *worker) {
	if !w.landed && w.last && s.late[w.name()].state == nothing {
		s.late[w.name()] = w.write
	}
}

// crash takes the handler and all memory with it.
func (s *state) crash(i uint8) {
	s.lose(i)
	s.w[i].rest()
}

// thaw wakes a worker. A handler whose lease is over ends there: until it wakes
// and looks at the clock it may act, and no lease can prevent it.
func (m *machine) thaw(s *state, i uint8) {
	w := &s.w[i]
	if w.trust == 0 && w.task == handling {
		s.lose(i) // still frozen: the handler does not act any more
		return
	}
	w.frozen = false
}

// restart begins a new incarnation, under a name that nothing refers to. Its
// first heartbeat is acknowledged at once: before, it does nothing.
func (m *machine) restart(s state, i uint8) {
	for gen := range uint8(2) {
		name := 2*i + gen
		reborn := m.keepName && s.keys[name] == alive
		if s.refers(name) && !reborn {
			continue
		}
		m.then("restart", s, true, func(s *state) {
			w := &s.w[i]
			w.gen, w.up, w.trust = gen, true, m.trust()
			s.setKey(name, alive)
		})
	}
}

// setKey is a write to a node's key.
func (s *state) setKey(name uint8, k key) { s.keys[name], s.quiet[name] = k, 0 }

// put is a write to the ledger, by the name of node, that is stored: every other
// one that names an older revision has lost, which its writer may learn at once.
// A worker that learns it later can do less meanwhile.
func (m *machine) put(s *state, x slot, node uint8) {
	if s.slot.final() {
		m.violate(finalChanged)
	}
	// An attempt that was started counts: taken back, it could be started again.
	if s.begun && x.attempt < s.slot.attempt {
		m.violate(startedTwice)
	}
	s.begun = s.begun && x.attempt == s.slot.attempt
	s.slot = x
	switch x.state {
	case running:
		s.unused.add(node)
	case succeeded:
		s.successes = min(s.successes+1, 2)
	}
	s.late = [maxNames]slot{}
	for i := range s.w {
		w := &s.w[i]
		w.last = false
		if !w.up {
			continue
		}
		switch {
		case w.landed:
		case w.task == claiming:
			w.rest()
		case w.task == completing && !m.completeAnywhere:
			m.refused(s, w)
		}
	}
}

// refused is a completion that has lost: silence.
func (m *machine) refused(s *state, w *worker) {
	if m.ackRefused {
		s.msg = false
	}
	w.rest()
}

// writes are those that reach the ledger, whether or not their writers run just
// now, or live.
func (m *machine) writes(s state) {
	for n, x := range s.late {
		if x.state != nothing {
			m.then("a late write lands", s, true, func(s *state) { m.put(s, x, uint8(n)) })
			m.then("a late write is lost", s, false, func(s *state) { s.late[n] = slot{} })
		}
	}
	for i := range m.workers {
		w := s.w[i]
		waits := w.up && !w.landed && (w.task == claiming || w.task == completing)
		if waits && (w.last || m.completeAnywhere && w.task == completing) {
			m.then("a write lands", s, true, func(s *state) {
				s.w[i].landed = true
				m.put(s, w.write, w.name())
				s.w[i].last = true
			})
		}
	}
}

// fence declares the slot's owner dead, at the revision at which its key was seen
// to stand still. Its sender may send it late, and die before it is stored.
func (m *machine) fence(s state) {
	n := s.slot.node
	if s.slot.state != running || s.keys[n] != alive || m.neverFence {
		return
	}
	if s.quiet[n] >= m.lease || m.fenceUnseen {
		m.then("the owner is fenced", s, true, func(s *state) { s.setKey(n, fenced) })
	}
}

// node is what an incarnation does for its own life.
func (m *machine) node(s state, i uint8) {
	w := s.w[i]
	switch {
	case w.trust == 0:
		m.then("the lapse is noticed", s, true, func(s *state) { s.lose(i) })
	case w.open:
		m.then("a heartbeat is answered", s, true, func(s *state) { m.answerBeat(s, i) })
	case s.keys[w.name()] == alive:
		m.then("a heartbeat lands", s, true, func(s *state) {
			s.setKey(w.name(), alive)
			s.w[i].open, s.w[i].age = true, 0
		})
	default:
		m.then("a heartbeat is refused", s, true, func(s *state) { s.lose(i) })
	}
	if w.task == idle {
		m.then("the last word lands", s, false, func(s *state) {
			if s.keys[w.name()] == alive {
				s.setKey(w.name(), stopped)
			}
			s.lose(i)
		})
		m.then("the last word is lost", s, false, func(s *state) { s.lose(i) })
	}
}

func (m *machine) answerBeat(s *state, i uint8) {
	w := &s.w[i]
	until := m.trust() - w.age
	if m.trustFromAnswer {
		until = m.trust()
	}
	if until == 0 {
		s.lose(i)
		return
	}
	w.trust, w.age, w.open = until, 0, false
}
