package producer

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
)

const (
	// maxSleep bounds the loop's sleep. So the loop notices within maxSleep that the machine
	// was suspended, or that the clock was stepped.
	maxSleep = time.Second

	// If more than maxSleep+jump has passed since the last turn, the producer concludes that its
	// process was suspended. A time more than jump after now counts as ahead of the clock.
	jump = 5 * time.Second

	// reconnectPoll is how often a producer without a connection checks for one.
	reconnectPoll = 100 * time.Millisecond

	// maxChunk bounds the slots that are taken off the agenda at a time.
	maxChunk = 1024

	// timerSlack is how late a timer may fire. If the next slot is due sooner than that, the
	// producer naps instead.
	timerSlack = 1500 * time.Microsecond
)

// session is the loop that moves slots from the agenda to the outbox, and acknowledged positions
// from the outbox to the keeper. One goroutine owns it. Run starts a new session after each
// reset of the watermark.
type session struct {
	*Producer
	agenda *agenda
	outbox *outbox
	keeper *keeper
	fleet  *fleet

	// announcements are those of the other producers. announcedAt is when this one last
	// announced something, by this machine's clock. announced is true while the others expect
	// this producer to publish its share.
	announcements chan exchange.Announcement
	announcedAt   time.Time
	announced     bool

	slots []dueSlot // the buffer of moveDue, kept for reuse

	// lastTurn is the broker's clock at the last turn. watermarkStale is true while the stored
	// watermark must be read before a slot is published, since others may have published
	// meanwhile. away is true after a turn in which canPublish was false, and at first if the clock
	// is implausible. reconnects is what Config.Reconnects returned at the last turn.
	lastTurn       time.Time
	watermarkStale bool
	away           bool
	reconnects     uint64

	// warned is when a warning about the clock or the watermark was last logged.
	// watermarkRead is when the stored watermark was last read.
	warned, watermarkRead time.Time

	// warnedFuture is when a warning about an announcement in the future was last logged.
	warnedFuture time.Time
}

func newSession(p *Producer, k *keeper) *session {
	f, a := newFleet(p.cfg), newAgenda(p.cfg.Horizon, k.stored, p.cfg.Logger)
	o := newOutbox(p, f, a)
	o.wokeAt = p.cfg.Clock.Now()
	return &session{
		Producer: p, keeper: k, fleet: f, outbox: o, watermarkStale: true, away: p.cfg.Clock.Plausible() != nil, announcements: make(chan exchange.Announcement, 256),
		agenda: a, lastTurn: p.cfg.Clock.Now(), reconnects: p.cfg.Reconnects(),
	}
}

func (s *session) run(ctx context.Context, events <-chan plans.RegistryEvent) error {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-events:
			s.agenda.apply(ev, s.now())
		case <-s.outbox.answers.ready:
		case a := <-s.announcements:
			s.receive(a)
		case <-s.cfg.Stepped:
		case <-timer.C:
		}
		s.drain(events)
		s.outbox.takeAnswers()
		pause, err := s.turn(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		s.stats.turn(s.outbox.standby)
		timer.Reset(pause)
	}
}

// drain takes in what has arrived, up to 4*maxChunk elements, so that one turn serves all of it.
func (s *session) drain(events <-chan plans.RegistryEvent) {
	for range 4 * maxChunk {
		select {
		case ev := <-events:
			s.agenda.apply(ev, s.now())
		case a := <-s.announcements:
			s.receive(a)
		default:
			return
		}
	}
}

// now is a time that the broker's clock has certainly reached. It subtracts the whole
// error, however large: a slot must not be stored before it is due.
func (s *session) now() time.Time {
	return s.cfg.Clock.Now().Add(-s.cfg.Clock.Error())
}

// turn does the work that is due, and returns how long to wait for more.
func (s *session) turn(ctx context.Context) (time.Duration, error) {
	now := s.now()
	able := s.canPublish(now)
	s.wake(now, able)
	s.agenda.zonesBehind = s.cfg.ZonesBehind()
	switch {
	case !s.agenda.ready:
		return maxSleep, nil // nothing is published before the registry is known
	case !able:
		// Slots stay on the agenda. When the producer can publish again, one decision
		// covers all that fell due meanwhile.
		s.away = true
		s.leave()
		return reconnectPoll, nil
	}
	nextTakeOver := s.outbox.takeOverdue(time.Now())
	if s.updateFleet(time.Now()) {
		return maxSleep, s.restingTurn(ctx, now)
	}
	if s.outbox.peersSilent {
		// An audit found that the active peers do not publish, so the stored watermark may be
		// false too. This producer goes on from its own position.
		s.outbox.peersSilent, s.watermarkStale = false, false
	}
	if s.watermarkStale || s.isDoubtful(now) && time.Since(s.watermarkRead) >= maxSleep {
		if err := s.refresh(ctx, now, time.Time{}); err != nil {
			return maxSleep, err
		}
	}
	if !s.watermarkStale {
		return s.publish(now, nextTakeOver), nil
	}
	return maxSleep, nil
}

// canPublish reports whether there is a connection, and a plausible clock.
func (s *session) canPublish(now time.Time) bool {
	if !s.cfg.Slots.Connected() {
		return false
	}
	err := s.cfg.Clock.Plausible()
	if err != nil && time.Since(s.warned) > warnEvery {
		s.warned = time.Now()
		s.cfg.Logger.Error("not producing: this node's clock and the broker's differ too much; correct the wrong one, or raise the limit (cronce run --max-clock-offset)",
			"error", err, "broker", now)
	}
	return err == nil
}

// wake detects that the process was suspended, that it can publish again, or that the connection
// was lost and restored since the last turn. Unacknowledged slots then return to the agenda, and
// the other producers are asked once to announce themselves.
func (s *session) wake(now time.Time, able bool) {
	reconnects := s.cfg.Reconnects()
	back := s.away && able || reconnects != s.reconnects
	slept := now.Sub(s.lastTurn) > maxSleep+jump
	s.lastTurn, s.reconnects = now, reconnects
	if !back && !slept {
		return
	}
	s.watermarkStale = true
	s.outbox.wokeAt = now
	s.outbox.returnToAgenda(nil)
	if able {
		s.away = false
		s.ask()
	}
}

// isDoubtful reports whether the known watermark is ahead of the clock, or of the registry's
// revision. The cause is a wrong clock, or a registry that was deleted or restored. An operator
// may then reset the watermark.
func (s *session) isDoubtful(now time.Time) bool {
	return s.isAhead(now) || s.agenda.base.revision > s.agenda.known.revision
}

func (s *session) isAhead(now time.Time) bool { return s.agenda.cursor.Sub(now) > jump }

// restingTurn is the turn of a producer that rests. Every half minute, if a slot fell due
// auditAfter ago or earlier, it makes an audit and reads the watermark. It skips the covered slots
// that are late, so that the slots of removed jobs do not stay on the agenda. It keeps the newer
// ones, since the watermark may be forged.
func (s *session) restingTurn(ctx context.Context, now time.Time) error {
	if s.outbox.peersSilent {
		s.outbox.peersSilent, s.watermarkRead = false, time.Time{} // make the next audit now: other active peers may not publish either
	}
	next, ok := s.agenda.next()
	if !ok || next.After(now.Add(-auditAfter)) || time.Since(s.watermarkRead) < s.fleet.auditEvery {
		return nil
	}
	s.audit(now)
	return s.refresh(ctx, now, now.Add(-plans.LateAfter))
}

// refresh reads the stored watermark, and lets the agenda skip the slots that it covers, up to
// until; zero: no limit. After an error that may be temporary, the session reads it again at its
// next turn.
func (s *session) refresh(ctx context.Context, now, until time.Time) error {
	s.watermarkRead = time.Now()
	wm, _, err := readWatermark(ctx, s.cfg.Watermark)
	pos := positionOf(wm)
	corrected := s.isAhead(now) && pos.behind(position{time: now.Add(jump)}) // it was ahead of the clock, and is not any more
	switch {
	case errors.Is(err, errUnreadable):
		// This producer's own position is the best there is. The keeper reads the watermark
		// too, and logs the error.
		s.watermarkStale = false
		return nil
	case err == nil && (corrected || pos.behind(s.agenda.base)):
		return errReset
	case err != nil:
		s.cfg.Logger.Warn("watermark cannot be read; trying again", "error", err)
		return nil
	}
	s.watermarkStale = false
	skip := pos
	if !until.IsZero() {
		skip.time = plans.Later(plans.Earlier(pos.time, until), s.agenda.base.time)
	}
	s.agenda.skipTo(skip)
	if ahead := pos.time.Sub(now); ahead > jump && time.Since(s.warned) > warnEvery {
		s.warned = time.Now()
		s.cfg.Logger.Warn("watermark is ahead of the clock: slots up to it count as published (see: cronce doctor)", "watermark", pos.time, "ahead", ahead)
	}
	return nil
}

// publish moves due slots from the agenda to the outbox. It announces what is acknowledged, and
// offers it to the keeper. It returns how long to wait.
func (s *session) publish(now, nextTakeOver time.Time) time.Duration {
	retry := s.outbox.retryDue(now)
	done := s.moveDue(now)
	if pos, ok := s.outbox.advance(); ok {
		s.keeper.offer(pos)
	}
	announceAt := s.announceShare(time.Now())
	pause := maxSleep
	if next, ok := s.agenda.next(); ok && done { // otherwise the next answer makes room and wakes the loop
		pause = min(pause, s.napUntil(next))
	}
	for _, at := range []time.Time{retry, nextTakeOver, announceAt} {
		if !at.IsZero() {
			pause = min(pause, max(time.Until(at), 0))
		}
	}
	return pause
}

// napUntil naps if the next slot is due in a moment, and otherwise returns how long a timer
// may sleep.
func (s *session) napUntil(next time.Time) time.Duration {
	left := next.Sub(s.now())
	if left > timerSlack {
		return left - timerSlack
	}
	if left > 0 {
		s.cfg.Nap(left)
	}
	return 0
}

// moveDue moves the slots that are due at now to the outbox, as far as there is room. It reports
// whether no due slot is left on the agenda.
func (s *session) moveDue(now time.Time) bool {
	for {
		if s.outbox.room() < maxChunk {
			return false
		}
		slots, done := s.agenda.due(s.slots[:0], now, maxChunk)
		if len(slots) > maxChunk/2 {
			// A burst takes long to send, and the others wait for an announcement. So the
			// announcement is sent before the burst.
			s.fleet.announceNow = true
			s.announceShare(time.Now())
		}
		s.outbox.add(divided(slots), now)
		clear(slots)
		s.slots = slots
		if !done {
			continue
		}
		if s.agenda.canAdvance() {
			s.outbox.mark(s.agenda.position(now))
		}
		return true
	}
}
