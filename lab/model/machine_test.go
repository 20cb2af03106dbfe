package model

// The violations, each of one invariant.
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

// mutation breaks the workers' rules in one way. The zero value breaks none.
type mutation struct {
	completeAnywhere bool // a completion names no revision
	takeOverUnfenced bool // a slot is taken over from an owner that was not fenced
	fenceUnseen      bool // a node is fenced although its key has changed within a lease
	neverFence       bool
	ackFirst         bool // the message is acked before the outcome is recorded
	ackRefused       bool // the message is acked although the completion was refused
	startOnRead      bool // the handler starts after a read, before its claim is won
	startOnUnknown   bool // a claim that was not answered counts as won
	startUntrusted   bool // the handler starts although the lease ended after the claim was sent
	trustFromAnswer  bool // the lease counts from the answer to the heartbeat
	noMargin         bool // a node trusts itself for the whole lease
	keepName         bool // a node goes on under the same name after its lease
	releaseStarted   bool // a worker that stops releases an attempt that was started, so it does not count
}

// machine makes the steps of the small world.
type machine struct {
	workers int
	lease   uint8 // in ticks; the last tick is the margin
	*rules
	mutation

	emit func(label string, next state, live bool)
	verdict
}

// verdict is the first violation that was found. Empty: none.
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

// start returns the world with all workers up, and one message.
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

// check checks the invariants of a state.
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

// then emits the state that change makes of s.
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

// ended reports whether the slot has its outcome, and no message is left.
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

// mustMove reports whether time cannot pass yet, because a worker must first notice that its trust has
// ended.
func (m *machine) mustMove(s state) bool {
	for i := range m.workers {
		w := s.w[i]
		if w.up && !w.frozen && w.trust == 0 {
			return true
		}
	}
	return false
}

// ticks lets time pass. Any worker may be frozen at the moment at which its trust ends. Before that
// moment, a frozen worker is no different from a slow one.
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

// tick lets one tick pass for all workers. The clock of a frozen one goes on too.
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

// lose ends the incarnation. A write that it has sent may still land, and its handler has the margin to
// return.
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

// orphan makes a worker's write a late one, for which no worker waits. A name has at most one late write. A
// second one counts as lost.
func (s *state) orphan(w *worker) {
	if !w.landed && w.last && s.late[w.name()].state == nothing {
		s.late[w.name()] = w.write
	}
}

// crash ends the incarnation, its handler and all that it remembers.
func (s *state) crash(i uint8) {
	s.lose(i)
	s.w[i].rest()
}

// thaw wakes a worker. If its lease has ended, its handler ends at once here. A real handler may act until
// it checks the clock, which no lease can prevent.
func (m *machine) thaw(s *state, i uint8) {
	w := &s.w[i]
	if w.trust == 0 && w.task == handling {
		s.lose(i) // still frozen: the handler does not act any more
		return
	}
	w.frozen = false
}

// restart begins a new incarnation, under a name that nothing refers to. Its first heartbeat is
// acknowledged at once, because it does nothing before that.
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

// setKey writes a node's key.
func (s *state) setKey(name uint8, k key) { s.keys[name], s.quiet[name] = k, 0 }

// put stores a write of a node to the ledger. Every other write names an older revision, so it is lost. Its
// writer learns that at once here, because a worker that learns it later can do less meanwhile.
func (m *machine) put(s *state, x slot, node uint8) {
	if s.slot.final() {
		m.violate(finalChanged)
	}
	// An attempt that was started must count. Otherwise it could be started again.
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

// refused ends the task of a worker whose completion was refused. The worker does not answer the message.
func (m *machine) refused(s *state, w *worker) {
	if m.ackRefused {
		s.msg = false
	}
	w.rest()
}

// writes lets each write that was sent reach the ledger, even if its writer is frozen or has ended.
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

// fence declares the slot's owner dead, at the revision at which its key did not change for a lease. The
// write may be sent late, and its sender may be dead when it is stored.
func (m *machine) fence(s state) {
	n := s.slot.node
	if s.slot.state != running || s.keys[n] != alive || m.neverFence {
		return
	}
	if s.quiet[n] >= m.lease || m.fenceUnseen {
		m.then("the owner is fenced", s, true, func(s *state) { s.setKey(n, fenced) })
	}
}

// node makes the steps of an incarnation that concern its own key.
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
