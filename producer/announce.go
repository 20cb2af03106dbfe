package producer

import (
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

const (
	// aliveEvery is how often a producer announces itself while slots of its share are
	// unacknowledged: the others keep copies of them.
	aliveEvery = 100 * time.Millisecond

	// announceGap is the least time between two announcements.
	announceGap = 10 * time.Millisecond
)

// receive takes in an announcement. A peer that announces slots which are not due yet does not
// count for a while: otherwise this producer would drop its copies of slots that the peer may
// never publish.
func (s *session) receive(a exchange.Announcement) {
	if ahead := a.Time.Sub(s.cfg.Clock.Now().Add(s.cfg.Clock.Error())); ahead > 0 {
		a.Time = time.Time{}
		if p := s.fleet.receive(a, time.Now()); p != nil {
			p.distrust(distrustFor)
		}
		if time.Since(s.warnedFuture) > warnEvery {
			s.warnedFuture = time.Now()
			s.cfg.Logger.Warn("announcement not believed: it covers slots that are not due yet", "node", a.Node, "ahead", ahead)
		}
		return
	}
	if p := s.fleet.receive(a, time.Now()); p != nil {
		s.outbox.dropAnnounced(p)
	}
}

// updateFleet computes which producers are active, and reports whether this one rests. A
// resting producer keeps its agenda current and publishes nothing but audits. When it
// becomes active it reads the watermark first, as after the process was suspended.
func (s *session) updateFleet(now time.Time) bool {
	rested := s.fleet.resting
	if s.fleet.update(now, s.agenda.canAdvance(), s.agenda.digest) {
		s.outbox.reshare()
		for _, p := range s.fleet.active {
			s.outbox.dropAnnounced(p) // the last announcement may match what this producer has just learned
		}
	}
	s.setRank(s.fleet.rank() + 1)
	if s.fleet.resting && !rested {
		s.cfg.Logger.Debug("resting: enough older producers are active", "producers", len(s.fleet.active))
		s.leave()
		s.outbox.returnToAgenda(nil)
	}
	s.watermarkStale = s.watermarkStale || s.fleet.resting
	return s.fleet.resting
}

// announceShare announces the time up to which this producer's share is acknowledged. It does so
// soon if the whole share was just acknowledged or a peer waits for an announcement, and
// otherwise at intervals. It returns when to call it again.
func (s *session) announceShare(now time.Time) (next time.Time) {
	if s.cfg.Peers == nil || !s.agenda.canAdvance() {
		return time.Time{}
	}
	own := s.outbox.unacked
	life := announceEvery
	if own > 0 {
		life = aliveEvery
	}
	at := s.announcedAt.Add(life)
	if s.fleet.announceNow || s.outbox.unannounced && own == 0 {
		at = s.announcedAt.Add(announceGap)
	}
	if now.Before(at) {
		return at
	}
	until, except, ok := s.outbox.announceable()
	s.announced = true
	s.announce(exchange.Announcement{
		Kind: exchange.AnnounceHere, Time: until, Except: except, Members: s.fleet.members, Registry: s.fleet.registry,
	})
	s.fleet.announceNow = false
	s.outbox.unannounced = s.outbox.unannounced && (own > 0 || !ok)
	return now.Add(life)
}

// ask requests an announcement from each active producer.
func (s *session) ask() { s.announce(exchange.Announcement{Kind: exchange.AnnounceAsk}) }

// leave announces that this producer is not active any more.
func (s *session) leave() {
	s.setRank(0)
	if s.announced {
		s.announced = false
		s.announce(exchange.Announcement{Kind: exchange.AnnounceLeave})
	}
}

// announce sends an announcement. It does not repeat a lost one: without it, the others publish
// this producer's share too.
func (s *session) announce(a exchange.Announcement) {
	if s.cfg.Peers == nil {
		return
	}
	a.Node, a.Started = s.cfg.Node, s.cfg.Started
	s.announcedAt = time.Now()
	if err := s.cfg.Peers.Announce(a); err != nil {
		s.cfg.Logger.Debug("announcement not sent", "error", err)
	}
}
