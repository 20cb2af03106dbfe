package producer

import (
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

const (
	// lifeEvery is how often a producer shows life while it has slots of its own
	// share that are not acknowledged: others hold copies of them.
	lifeEvery = 100 * time.Millisecond

	// hush is the least time between two announcements.
	hush = 10 * time.Millisecond
)

// hear takes in what another producer announced. One that claims slots which are not due
// yet does not count for a while: it would have all its slots left to it, whatever it does.
func (s *shift) hear(a core.Announcement) {
	if ahead := a.Time.Sub(s.cfg.Clock.Now().Add(s.cfg.Clock.Error())); ahead > 0 {
		a.Time = time.Time{}
		if p := s.fleet.hear(a, time.Now()); p != nil {
			p.distrusted = time.Now().Add(distrust)
		}
		if time.Since(s.disbelieved) > complainEvery {
			s.disbelieved = time.Now()
			s.cfg.Logger.Warn("announcement not believed: it claims slots that are not due yet", "node", a.Node, "ahead", ahead)
		}
		return
	}
	if p := s.fleet.hear(a, time.Now()); p != nil {
		s.outbox.believe(p, s.board)
	}
}

// rest takes stock of the fleet and reports whether there are enough older
// producers. One that rests knows the registry, and nothing else: when it has to
// take part it goes on from the watermark, as after a suspend.
func (s *shift) rest(now time.Time) bool {
	rested := s.fleet.rests
	if s.fleet.review(now, s.board.vouches(), s.board.digest) {
		s.outbox.reshare()
		for _, p := range s.fleet.active {
			s.outbox.believe(p, s.board) // what it said last may be of what we have come to know
		}
	}
	s.takes(s.fleet.place() + 1)
	if s.fleet.rests && !rested {
		s.cfg.Logger.Debug("resting: enough older producers take part", "producers", len(s.fleet.active))
		s.leave()
		s.outbox.giveBack(s.board, nil)
	}
	s.asleep = s.asleep || s.fleet.rests
	return s.fleet.rests
}

// speak announces what there is to say, and returns when there will be more.
func (s *shift) speak(now time.Time) (next time.Time) {
	if s.cfg.Peers == nil || !s.board.vouches() {
		return time.Time{}
	}
	own := s.outbox.own()
	life := presence
	if own > 0 {
		life = lifeEvery
	}
	at := s.spokenAt.Add(life)
	if s.fleet.asked || s.outbox.owes && own == 0 {
		at = s.spokenAt.Add(hush)
	}
	if now.Before(at) {
		return at
	}
	until, except, ok := s.outbox.share()
	s.here = true
	s.announce(core.Announcement{
		Kind: core.AnnounceHere, Time: until, Except: except, Members: s.fleet.members, Registry: s.fleet.registry,
	})
	s.fleet.asked = false
	s.outbox.owes = s.outbox.owes && (own > 0 || !ok)
	return now.Add(life)
}

// ask has those that take part announce themselves.
func (s *shift) ask() { s.announce(core.Announcement{Kind: core.AnnounceAsk}) }

// leave says that this producer does not take part any more.
func (s *shift) leave() {
	s.takes(0)
	if s.here {
		s.here = false
		s.announce(core.Announcement{Kind: core.AnnounceLeave})
	}
}

// announce is best effort: who is not heard does not count.
func (s *shift) announce(a core.Announcement) {
	if s.cfg.Peers == nil {
		return
	}
	a.Node, a.Started = s.cfg.Node, s.cfg.Started
	s.spokenAt = time.Now()
	if err := s.cfg.Peers.Announce(a); err != nil {
		s.cfg.Logger.Debug("announcement not told", "err", err)
	}
}
