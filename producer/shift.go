package producer

import (
	"context"
	"errors"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

const (
	// maxSleep is how long a suspended machine or a stepped clock may go
	// unnoticed.
	maxSleep = time.Second

	// jump is by how much more than a sleep the clock must have moved for the
	// producer to hold that it was asleep itself.
	jump = 5 * time.Second

	// awaySleep is how often to look for a connection that is lost.
	awaySleep = 100 * time.Millisecond

	// maxChunk bounds what is handed out before the producer looks up.
	maxChunk = 1024

	// exact is how long before the next slot is due the producer no longer trusts a
	// timer to wake it in time.
	exact = 1500 * time.Microsecond
)

// shift is one Run: the loop that moves slots from the board to the outbox and
// what is acknowledged from the outbox to the keeper. One goroutine owns it.
type shift struct {
	*Producer
	board  *board
	outbox *outbox
	keeper *keeper
	fleet  *fleet

	// said is what other producers announce, spokenAt when we last did, by this
	// machine's clock; here says that they count on us.
	said     chan core.Announcement
	spokenAt time.Time
	here     bool

	// slots has room for those of a chunk.
	slots []dueSlot

	// seen is the clock at the last turn; asleep says that the
	// stored watermark must be asked before anything else is handed out: others
	// may have published meanwhile.
	seen   time.Time
	asleep bool
	away   bool

	// complained is when it was last said that the clocks disagree, or that the
	// watermark is ahead; looked is when the stored one was last read.
	complained, looked time.Time

	// disbelieved is when it was last said that an announcement is false.
	disbelieved time.Time
}

func newShift(p *Producer, k *keeper) *shift {
	rules := core.Lateness{Late: p.cfg.Late, Horizon: p.cfg.Horizon}
	f, b := newFleet(p.cfg, rules), newBoard(rules, k.stored, p.cfg.Logger)
	o := newOutbox(p, f, b)
	o.wokeAt = p.cfg.Clock.Now()
	return &shift{
		Producer: p, keeper: k, fleet: f, outbox: o, asleep: true, said: make(chan core.Announcement, 256),
		board: b, seen: p.cfg.Clock.Now(),
	}
}

func (s *shift) run(ctx context.Context, events <-chan core.RegistryEvent) error {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-events:
			s.board.apply(ev, s.now())
		case <-s.outbox.answers.came:
		case a := <-s.said:
			s.hear(a)
		case <-s.cfg.Stepped:
		case <-timer.C:
		}
		s.drain(events)
		s.outbox.answered()
		pause, err := s.turn(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		s.stats.turn(s.outbox.standing)
		timer.Reset(pause)
	}
}

// drain takes in what else has come, so that a turn is not made for each.
func (s *shift) drain(events <-chan core.RegistryEvent) {
	for range 4 * maxChunk {
		select {
		case ev := <-events:
			s.board.apply(ev, s.now())
		case a := <-s.said:
			s.hear(a)
		default:
			return
		}
	}
}

// now is what the broker's clock has certainly reached. It subtracts the whole error,
// however large that is: a slot must not be stored before it is due.
func (s *shift) now() time.Time {
	return s.cfg.Clock.Now().Add(-s.cfg.Clock.Error())
}

// turn does what there is to do and returns for how long there is nothing more.
func (s *shift) turn(ctx context.Context) (time.Duration, error) {
	now := s.now()
	able := s.canPublish(now)
	s.wake(now, able)
	s.board.zonesBehind = s.cfg.ZonesBehind()
	switch {
	case !s.board.ready:
		return maxSleep, nil // nothing is published before the registry is known
	case !able:
		// Nothing is computed ahead: all that has fallen due when the producer can
		// publish again is judged at once.
		s.away = true
		s.leave()
		return awaySleep, nil
	}
	look := s.outbox.overdue(time.Now())
	if s.rest(time.Now()) {
		return maxSleep, s.rests(ctx, now)
	}
	if s.outbox.found {
		s.outbox.found, s.asleep = false, false // the stored watermark may be forged
	}
	if s.asleep || s.doubtful(now) && time.Since(s.looked) >= maxSleep {
		if err := s.refresh(ctx, now, time.Time{}); err != nil {
			return maxSleep, err
		}
	}
	if !s.asleep {
		return s.publish(now, look), nil
	}
	return maxSleep, nil
}

// canPublish reports whether there is a connection, and a clock to go by.
func (s *shift) canPublish(now time.Time) bool {
	if !s.cfg.Slots.Connected() {
		return false
	}
	err := s.cfg.Clock.Plausible()
	if err != nil && time.Since(s.complained) > complainEvery {
		s.complained = time.Now()
		s.cfg.Logger.Error("this node does not produce: set the wrong clock right, or allow more with --max-clock-offset",
			"error", err, "broker", now)
	}
	return err == nil
}

// wake notices that the producer was asleep, or could not publish and can again. What is
// not acknowledged then goes back to the board, and the other producers are asked once
// to announce themselves.
func (s *shift) wake(now time.Time, able bool) {
	back := s.away && able
	slept := now.Sub(s.seen) > maxSleep+jump
	s.seen = now
	if !back && !slept {
		return
	}
	s.asleep = true
	s.outbox.wokeAt = now
	s.outbox.giveBack(s.board, nil)
	if able {
		s.away = false
		s.ask()
	}
}

// doubtful reports whether what counts as published is ahead of the clock, or of
// a registry that the watermark knows more of than there is: it was carried there
// by a wrong clock, or with another registry, and an operator may reset it.
func (s *shift) doubtful(now time.Time) bool {
	return s.ahead(now) || s.board.base.revision > s.board.known.revision
}

func (s *shift) ahead(now time.Time) bool { return s.board.cursor.Sub(now) > jump }

// rests is the turn of a producer that rests. Every half a minute, if there are slots that
// fell due, it makes an audit and skips what the watermark covers of the slots that are
// late: it hands out nothing, and would otherwise keep the slots of removed jobs for good.
func (s *shift) rests(ctx context.Context, now time.Time) error {
	if s.outbox.found {
		s.outbox.found, s.looked = false, time.Time{} // there are others; they may be false too
	}
	next, ok := s.board.next()
	if !ok || next.After(now.Add(-auditAfter)) || time.Since(s.looked) < s.fleet.auditEvery {
		return nil
	}
	s.audit(now)
	return s.refresh(ctx, now, now.Add(-s.cfg.Late))
}

// refresh takes up the stored watermark, as far as until. A failure that time may mend leaves the
// shift asleep.
func (s *shift) refresh(ctx context.Context, now, until time.Time) error {
	s.looked = time.Now()
	wm, _, err := readWatermark(ctx, s.cfg.Watermark)
	pos := positionOf(wm)
	switch {
	case errors.Is(err, errUnreadable):
		// What this producer knows is the best there is. The keeper reads it too, and
		// says so.
		s.asleep = false
		return nil
	case err == nil && (pos.behind(s.board.base) || s.ahead(now) && pos.behind(position{time: now.Add(jump)})):
		return errReset
	case err != nil:
		s.cfg.Logger.Warn("the watermark cannot be read; trying again", "err", err)
		return nil
	}
	s.asleep = false
	skip := pos
	if !until.IsZero() {
		skip.time = later(earlier(pos.time, until), s.board.base.time)
	}
	s.board.skip(skip)
	if ahead := pos.time.Sub(now); ahead > jump && time.Since(s.complained) > complainEvery {
		s.complained = time.Now()
		s.cfg.Logger.Warn("the watermark is ahead of the clock: slots up to it count as published (see: cronce doctor)", "watermark", pos.time, "ahead", ahead)
	}
	return nil
}

// publish moves what is due from the board to the outbox.
func (s *shift) publish(now, look time.Time) time.Duration {
	retry := s.outbox.repeat(s.board, now)
	done := s.handOut(now)
	if pos, ok := s.outbox.claim(); ok {
		s.keeper.offer(pos)
	}
	speak := s.speak(time.Now())
	pause := maxSleep
	if next, ok := s.board.next(); ok && done { // else an answer makes room and wakes us
		pause = min(pause, s.await(next))
	}
	for _, at := range []time.Time{retry, look, speak} {
		if !at.IsZero() {
			pause = min(pause, max(time.Until(at), 0))
		}
	}
	return pause
}

// await waits for the next slot if it is due in a moment, and returns how long not to.
func (s *shift) await(next time.Time) time.Duration {
	left := next.Sub(s.now())
	if left > exact {
		return left - exact
	}
	if left > 0 {
		s.cfg.Nap(left)
	}
	return 0
}

// handOut reports whether all that is due at now has left the board.
func (s *shift) handOut(now time.Time) bool {
	for {
		if s.outbox.room() < maxChunk {
			return false
		}
		slots, done := s.board.due(s.slots[:0], now, maxChunk)
		if len(slots) > maxChunk/2 {
			// A burst takes its time, and others wait for a sign of life: it goes
			// ahead of the slots on their way to the broker.
			s.fleet.asked = true
			s.speak(time.Now())
		}
		s.outbox.add(divided(slots), now)
		clear(slots)
		s.slots = slots
		if !done {
			continue
		}
		if s.board.vouches() {
			s.outbox.mark(s.board.position(now))
		}
		return true
	}
}
