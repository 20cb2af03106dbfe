package model

import (
	"errors"

	"github.com/cronce-io/cronce/internal/core"
)

var errStopped = errors.New("stopped")

// work makes the steps of a worker that concern the slot.
func (m *machine) work(s state, i uint8) {
	w := s.w[i]
	switch w.task {
	case idle:
		if s.msg {
			m.deliver(s, i)
		}
	case claiming:
		m.answerClaim(s, i)
	case handling:
		m.handlerEnds(s, i)
	case completing:
		if w.landed {
			m.settle(s, i, w.write)
		}
	}
}

// deliver delivers the message to a worker without a task. The broker may do so at any time, even while
// another worker holds the message. The worker reads the ledger, and the owner's key.
func (m *machine) deliver(s state, i uint8) {
	q := question{slot: s.slot, self: s.w[i].name()}
	if m.decide(q).action == core.Prove {
		if !s.keys[s.slot.node].dead() && !m.takeOverUnfenced {
			return
		}
		q.dead = true
	}
	m.then("delivered", s, true, func(s *state) { m.follow(s, i, q) })
}

// follow does what the claim rules decide.
func (m *machine) follow(s *state, i uint8, q question) {
	w, a := &s.w[i], m.decide(q)
	switch a.action {
	case core.Ack:
		s.msg = false
	case core.Start, core.End:
		w.task, w.write, w.last = claiming, a.slot, true
		if a.action == core.Start && m.startOnRead {
			m.begin(s, i)
		}
	}
}

// answerClaim answers a claim, or an outcome without a run. Or the worker gives up, and there is no answer.
func (m *machine) answerClaim(s state, i uint8) {
	w := s.w[i]
	m.then("a claim is not answered", s, false, func(s *state) {
		s.orphan(&s.w[i])
		s.w[i].rest()
		if m.startOnUnknown && w.write.state == running {
			m.begin(s, i)
		}
	})
	switch {
	case !w.landed:
		return
	case w.write.final():
		m.settle(s, i, w.write)
		return
	case !w.last:
		m.then("a won claim is found replaced", s, true, func(s *state) { s.w[i].rest() })
	}
	trusted := w.trust > 0 || m.startUntrusted
	m.then("a claim is won", s, true, func(s *state) {
		if !trusted {
			s.w[i].rest()
			return
		}
		m.begin(s, i)
	})
	if trusted {
		m.then("a claim is won, but the worker stops", s, false, func(s *state) { m.finish(s, i, m.release(w.write)) })
	}
}

// begin starts the handler.
func (m *machine) begin(s *state, i uint8) {
	w := &s.w[i]
	if !s.unused.has(w.name()) {
		m.violate(unclaimedStart)
	}
	if w.trust == 0 {
		m.violate(untrustedStart)
	}
	if s.begun {
		m.violate(startedTwice)
	}
	s.unused.drop(w.name())
	s.begun = true
	last := w.last
	w.rest()
	w.task, w.last = handling, last
}

// handlerEnds lets the handler succeed, fail, or be stopped with its worker. A worker that stops goes on
// taking slots here, so it can do more than a real one.
func (m *machine) handlerEnds(s state, i uint8) {
	m.then("the handler succeeds", s, true, func(s *state) { m.finish(s, i, m.complete(m.mine(s, i), core.Result{})) })
	m.then("the handler fails", s, true, func(s *state) { m.finish(s, i, m.complete(m.mine(s, i), core.Result{Err: errAgain})) })
	m.then("the handler is stopped", s, false, func(s *state) {
		if m.releaseStarted {
			m.finish(s, i, m.release(m.mine(s, i)))
			return
		}
		m.finish(s, i, m.complete(m.mine(s, i), core.Result{Err: errStopped, Stopped: true}))
	})
}

// mine returns the record of the worker's claim. If the worker has lost the claim, its completion is
// refused at the old revision, so this record matters only to mutants.
func (m *machine) mine(s *state, i uint8) slot {
	return slot{running, s.w[i].name(), max(s.slot.attempt, 1)}
}

// finish sends the write that ends an attempt, at the revision of its claim.
func (m *machine) finish(s *state, i uint8, x slot) {
	w := &s.w[i]
	last := w.last
	w.rest()
	w.task, w.write, w.last = completing, x, last
	if m.ackFirst && x.final() {
		s.msg = false
	}
	if !last && !m.completeAnywhere {
		m.refused(s, w)
	}
}

// settle acks the message, or gives it back. If an ack is lost, a later delivery acks the message.
func (m *machine) settle(s state, i uint8, x slot) {
	m.then("settled", s, true, func(s *state) {
		s.msg = s.msg && !x.final()
		s.w[i].rest()
	})
}
