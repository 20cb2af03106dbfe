package consumer

import (
	"sync"
	"time"
)

const (
	// maxAhead bounds the messages that have no permit yet, per permit.
	maxAhead = 64

	// maxUnrecorded bounds the slots whose handlers have returned and whose outcomes
	// are not stored yet, per permit.
	maxUnrecorded = 64

	// patience is how long a slot waits for a permit before the worker gives it back:
	// another worker may have one.
	patience = 500 * time.Millisecond
)

// limiter bounds the handlers of one queue that run at once in this process, over all its
// incarnations. A handler holds a permit from before its start until it has returned.
//
// Invariants:
//   - At most size permits are taken, and no slot waits while one is free.
//   - The messages that were asked for, or are here without a permit, are no more than the
//     free permits plus those that will soon be free (see ahead). There is one exception:
//     while a permit is free, a source without an open request may ask for one message.
//
// It is safe for concurrent use.
type limiter struct {
	size   int
	resume func(*task) // goes on with a task whose wait is over, and does not block

	// unrecorded holds one token for each slot whose handler has returned and whose
	// outcome is not stored yet.
	unrecorded chan struct{}

	mu      sync.Mutex
	taken   int
	asked   int      // messages, by all sources
	pending int      // messages here without a permit: in line, or claimed ahead
	line    []waiter // the pending tasks that can do nothing more without a permit
	expiry  *time.Timer
	pace    pace
	pullers map[*puller]struct{} // those that may ask for more when a permit is free
}

// waiter is a task in the line. It holds no goroutine. The limiter resumes it, with or without
// a permit.
type waiter struct {
	t     *task
	since time.Time
}

func newLimiter(size int) *limiter {
	l := &limiter{size: size, resume: (*task).resume, unrecorded: make(chan struct{}, maxUnrecorded*size), pullers: map[*puller]struct{}{}}
	l.expiry = time.AfterFunc(time.Hour, l.expire)
	l.expiry.Stop()
	return l
}

// follow registers a puller. Until unfollow, the limiter kicks the puller whenever a permit is
// released or a task withdraws, since it may ask for more then.
func (l *limiter) follow(p *puller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pullers[p] = struct{}{}
}

func (l *limiter) unfollow(p *puller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pullers, p)
}

// reserve returns how many messages a source may ask for, at most most, and counts them as
// asked for. own is how many messages the source's open requests may still bring. If there are
// any, reserve returns 0 until half of the window is unused. So a steady trickle of slots costs
// one request for several slots.
func (l *limiter) reserve(own, most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	window := l.size - l.taken + l.ahead() - l.pending
	n := min(window-l.asked, most)
	switch {
	case own == 0 && n <= 0 && l.taken < l.size:
		n = 1 // the requests of other sources must not keep this one from its messages
	case n <= 0 || own > 0 && n < window/2:
		return 0
	}
	l.asked += n
	return n
}

// ahead returns how many messages may be here without a permit: as many as short handlers
// returned in a recent interval (see pace). If these are fewer than size, it returns 0, so that
// no slot waits here while another worker has a free permit. l.mu is held.
func (l *limiter) ahead() int {
	n := min(l.pace.count(time.Now()), maxAhead*l.size)
	if n < l.size {
		return 0
	}
	return n
}

// forget subtracts n from the messages that were asked for: they have arrived, or never will.
func (l *limiter) forget(n int) {
	l.mu.Lock()
	l.asked -= n
	l.mu.Unlock()
}

// admit lets the task of a new message begin, with a permit or, within the bound of ahead,
// without one. If it returns false, the task waits in the line until the limiter resumes it.
func (l *limiter) admit(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken < l.size {
		l.taken++
		t.permit = true
		return true
	}
	l.pending++
	t.ahead = true
	if l.pending > l.ahead() {
		l.queue(waiter{t: t})
		return false
	}
	return true
}

// acquire gives the task a permit if one is free. If it returns false, the task waits in the
// line until the limiter resumes it, and the caller must not touch the task any more.
func (l *limiter) acquire(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tryAcquire(t) {
		return true
	}
	l.queue(waiter{t: t})
	return false
}

// tryAcquire gives the task a permit if one is free, and else counts it as pending. l.mu is
// held.
func (l *limiter) tryAcquire(t *task) bool {
	if !t.ahead {
		l.pending++
		t.ahead = true
	}
	if l.taken == l.size {
		return false
	}
	l.taken++
	l.leaveLine(t, true)
	return true
}

// queue appends to the line. l.mu is held.
func (l *limiter) queue(w waiter) {
	w.since = time.Now()
	if l.line = append(l.line, w); len(l.line) == 1 {
		l.expiry.Reset(patience)
	}
}

// leaveLine notes that the task is not pending any more, because it got a permit or needs none.
// The caller removes it from the line. l.mu is held.
func (l *limiter) leaveLine(t *task, permit bool) {
	l.pending--
	t.ahead, t.permit = false, permit
}

// withdraw notes that a pending task, which is not in the line, needs no permit any more.
func (l *limiter) withdraw(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLine(t, false)
	for p := range l.pullers {
		p.kick()
	}
}

// returned releases the permit of a handler that has returned; see release. If the handler was
// short, it counts for the pace.
func (l *limiter) returned(took time.Duration) (next *task) {
	if took < paceInterval {
		l.mu.Lock()
		l.pace.add(time.Now())
		l.mu.Unlock()
	}
	return l.release()
}

// release passes a permit on to the first task in the line, or frees it. If that task has its
// claim, release returns it: it runs its handler next, and the caller has a goroutine for that.
// If it has none, release resumes it, and returns nil.
func (l *limiter) release() (next *task) {
	l.mu.Lock()
	if len(l.line) > 0 {
		next = l.line[0].t
		l.cut(1)
		l.leaveLine(next, true)
	} else {
		l.taken--
	}
	for p := range l.pullers { // there may be more to ask for
		p.kick()
	}
	l.mu.Unlock()
	if next != nil && next.fence == 0 {
		l.resume(next)
		return nil
	}
	return next
}

// cut removes the first n tasks of the line, and sets the timer for the next. l.mu is held.
func (l *limiter) cut(n int) {
	if l.line = l.line[n:]; len(l.line) == 0 {
		l.line = nil
		l.expiry.Stop()
		return
	}
	l.expiry.Reset(max(time.Until(l.line[0].since.Add(patience)), 0))
}

// expire refuses a permit to the tasks that have waited for patience. The handlers have become
// slow, so it resets the pace.
func (l *limiter) expire() {
	now := time.Now()
	l.mu.Lock()
	n := 0
	for n < len(l.line) && now.Sub(l.line[n].since) >= patience {
		n++
	}
	if n > 0 {
		l.pace = pace{}
	}
	late := l.line[:n:n]
	l.cut(n)
	l.refuse(late)
}

// close refuses a permit to all waiting tasks of the consumer, which is ending.
func (l *limiter) close(c *Consumer) {
	l.mu.Lock()
	var refused, others []waiter
	for _, w := range l.line {
		if w.t.Consumer == c {
			refused = append(refused, w)
		} else {
			others = append(others, w)
		}
	}
	l.line = others
	l.cut(0)
	l.refuse(refused)
}

// refuse resumes the waiters without a permit. It is called with l.mu held, and unlocks it.
func (l *limiter) refuse(waiters []waiter) {
	for _, w := range waiters {
		l.leaveLine(w.t, false)
	}
	l.mu.Unlock()
	for _, w := range waiters {
		l.resume(w.t)
	}
}

// pace counts how many short handlers return in an interval.
type pace struct {
	since     time.Time
	now, last int // in the interval that began at since, and in the one before
}

const paceInterval = 50 * time.Millisecond

func (p *pace) add(now time.Time) {
	p.turn(now)
	p.now++
}

// count is how many returned in the last interval, or in this one if that is more.
func (p *pace) count(now time.Time) int {
	p.turn(now)
	return max(p.last, p.now)
}

// turn begins a new interval when the last one is over.
func (p *pace) turn(now time.Time) {
	switch over := now.Sub(p.since); {
	case over < paceInterval:
		return
	case over < 2*paceInterval:
		p.last = p.now
	default:
		p.last = 0
	}
	p.since, p.now = now, 0
}
