package consumer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// For each permit of a limiter, this process may have received at most maxAhead messages that
	// hold no permit yet.
	maxAhead = 64

	// maxBurst replaces maxAhead while few handlers return: then only an earlier burst shows that
	// the handlers are short (see paceMemory).
	maxBurst = 8

	// For each permit, at most maxUnrecorded tasks whose handlers have returned may be open.
	maxUnrecorded = 64

	// maxWait is how long a slot waits for a permit before its message returns to the queue:
	// another worker may have a free permit.
	maxWait = 500 * time.Millisecond
)

// limiter bounds the handlers of one queue that run at once in this process, over all its
// incarnations. A handler holds a permit from before its start until it has returned.
//
// Invariants:
//   - At most size permits are taken, and no slot waits while one is free.
//   - The messages that were asked for, or were received and hold no permit, are no more than
//     the free permits plus those that will soon be free (see maxPending). There is one exception:
//     while a permit is free, a source without an open request may ask for one message.
//
// It is safe for concurrent use.
type limiter struct {
	size   int
	resume func(*task) // goes on with a task whose wait is over, and does not block

	// unrecorded holds one token for each task whose handler has returned and that is not closed
	// yet.
	unrecorded chan struct{}

	mu      sync.Mutex
	taken   int
	asked   int      // messages that all sources have asked for and not received
	pending int      // received messages without a permit: they wait for one, or are claimed ahead
	waiters []waiter // the pending tasks that can do nothing more without a permit

	// standing counts the tasks whose slots are being put into the lines of their jobs. They need no
	// permit. At most maxAhead for each permit are under way.
	standing int

	expiry  *time.Timer
	pace    pace
	pullers map[*puller]struct{} // kicked when a permit is released: see register
}

// waiter is a task that waits for a permit. It holds no goroutine. The limiter resumes it, with
// or without a permit.
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

// register registers a puller. Until unregister, the limiter kicks the puller whenever a permit
// is released or a task withdraws, since it may ask for more then.
func (l *limiter) register(p *puller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pullers[p] = struct{}{}
}

func (l *limiter) unregister(p *puller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pullers, p)
}

// denied returns why the login may not ask a source of the queue for messages, or nil.
func (l *limiter) denied() error {
	l.mu.Lock()
	pullers := slices.Collect(maps.Keys(l.pullers))
	l.mu.Unlock()
	for _, p := range pullers {
		if err := p.denied(); err != nil {
			return err
		}
	}
	return nil
}

// reserve returns how many messages a source may ask for, no more than most, and counts them as
// asked for. own is how many messages of its earlier requests may still arrive, or are arriving.
// The window is how many messages all sources together may have asked for. If own is not 0,
// reserve returns 0 until the source may ask for half of the window. So if slots arrive one by
// one, one request serves several of them.
func (l *limiter) reserve(own, most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	window := l.size - l.taken + l.maxPending() - l.pending
	n := min(window-l.asked, most)
	switch {
	case l.standing >= maxAhead*l.size:
		return 0
	case own == 0 && n <= 0 && l.taken < l.size:
		n = 1 // the requests of other sources must not keep this one from its messages
	case n <= 0 || own > 0 && n < window/2:
		return 0
	}
	l.asked += n
	return n
}

// maxPending returns how many received messages may be without a permit. It is the larger of two
// numbers: the short handlers that returned in a recent interval (see pace), at most maxAhead
// for each permit, and those that returned in the busiest interval of the last seconds, at most
// maxBurst for each permit. If that is less than size, maxPending returns 0, so that no slot
// waits here while another worker has a free permit. l.mu is held.
func (l *limiter) maxPending() int {
	now := time.Now()
	n := max(min(l.pace.count(now), maxAhead*l.size), min(l.pace.burst(now), maxBurst*l.size))
	if n < l.size {
		return 0
	}
	return n
}

// forget subtracts n from the messages that were asked for. They will never arrive, or their
// request is about to end and is replaced, or a stopping worker returns them to the queue.
func (l *limiter) forget(n int) {
	l.mu.Lock()
	l.asked -= n
	l.mu.Unlock()
}

// admit lets the task of a new message begin, with a permit or, within the bound of maxPending,
// without one. If it returns false, the task waits until the limiter resumes it. In the same
// critical section, the message stops counting as asked for, so that reserve always counts it
// once.
func (l *limiter) admit(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.asked {
		l.asked--
		t.asked = false
	}
	if l.taken < l.size {
		l.taken++
		t.permit = true
		return true
	}
	l.pending++
	t.pending = true
	if l.pending > l.maxPending() {
		l.enqueue(waiter{t: t})
		return false
	}
	return true
}

// acquire gives the task a permit if one is free. If it returns false, the task waits until
// the limiter resumes it, and the caller must not touch the task any more.
func (l *limiter) acquire(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tryAcquire(t) {
		return true
	}
	l.enqueue(waiter{t: t})
	return false
}

// tryAcquire gives the task a permit if one is free. Otherwise it counts the task as pending.
// l.mu is held.
func (l *limiter) tryAcquire(t *task) bool {
	if !t.pending {
		l.pending++
		t.pending = true
	}
	if l.taken == l.size {
		return false
	}
	l.taken++
	l.endPending(t, true)
	return true
}

// enqueue appends to the waiters. l.mu is held.
func (l *limiter) enqueue(w waiter) {
	w.since = time.Now()
	if l.waiters = append(l.waiters, w); len(l.waiters) == 1 {
		l.expiry.Reset(maxWait)
	}
}

// endPending notes that the task is not pending any more, and whether it got a permit. It got none if
// its wait has timed out, or if it does not need one any more. The caller removes it from the waiters.
// l.mu is held.
func (l *limiter) endPending(t *task, permit bool) {
	l.pending--
	t.pending, t.permit = false, permit
}

// withdraw notes that a pending task, which is not among the waiters, no longer needs a permit.
func (l *limiter) withdraw(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endPending(t, false)
	for p := range l.pullers {
		p.kick()
	}
}

// stand notes that the slot of a task is put into its job's line. The task needs no permit then. Like a
// short handler it counts for the pace, so that a burst of slots that have to wait does not keep
// the slots behind it from their workers.
func (l *limiter) stand(t *task) {
	if t.stands {
		return
	}
	t.stands = true
	l.mu.Lock()
	l.standing++
	l.pace.add(time.Now())
	l.mu.Unlock()
	t.releasePermit()
}

// stood notes that the task of such a slot is over.
func (l *limiter) stood() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standing--
	for p := range l.pullers {
		p.kick()
	}
}

// returned releases the permit of a handler that has returned; see release. If the handler was
// short, it counts for the pace.
func (l *limiter) returned(took time.Duration) (next *task) {
	l.mu.Lock()
	if took < paceInterval {
		l.pace.add(time.Now())
	} else {
		l.pace.busiest = 0
	}
	l.mu.Unlock()
	return l.release()
}

// release passes a permit on to the task of the first waiter, or frees it. If that task has its
// claim, release returns the task, and the caller runs its handler on a goroutine. If the task has
// no claim, release resumes it, and returns nil.
func (l *limiter) release() (next *task) {
	l.mu.Lock()
	if len(l.waiters) > 0 {
		next = l.waiters[0].t
		l.cut(1)
		l.endPending(next, true)
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

// cut removes the first n waiters, and sets the timer for the next. l.mu is held.
func (l *limiter) cut(n int) {
	if l.waiters = l.waiters[n:]; len(l.waiters) == 0 {
		l.waiters = nil
		l.expiry.Stop()
		return
	}
	l.expiry.Reset(max(time.Until(l.waiters[0].since.Add(maxWait)), 0))
}

// expire resumes, without a permit, the tasks that have waited for at least maxWait. If there
// are any, the handlers have become slow, so expire resets the pace.
func (l *limiter) expire() {
	now := time.Now()
	l.mu.Lock()
	n := 0
	for n < len(l.waiters) && now.Sub(l.waiters[n].since) >= maxWait {
		n++
	}
	if n > 0 {
		l.pace = pace{}
	}
	late := l.waiters[:n:n]
	l.cut(n)
	l.refuse(late)
}

// close resumes, without a permit, all waiting tasks of the consumer, which is ending.
func (l *limiter) close(c *Consumer) {
	l.mu.Lock()
	var refused, others []waiter
	for _, w := range l.waiters {
		if w.t.Consumer == c {
			refused = append(refused, w)
		} else {
			others = append(others, w)
		}
	}
	l.waiters = others
	l.cut(0)
	l.refuse(refused)
}

// refuse resumes the waiters without a permit. It is called with l.mu held, and unlocks it.
func (l *limiter) refuse(waiters []waiter) {
	for _, w := range waiters {
		l.endPending(w.t, false)
	}
	l.mu.Unlock()
	for _, w := range waiters {
		l.resume(w.t)
	}
}

// pace counts how many short handlers return in an interval.
type pace struct {
	since             time.Time
	current, previous int // in the interval that began at since, and in the one before

	// busiest is the largest number in an interval since the last handler that was not short.
	// busiestAt is when rollOver saw that this interval was over.
	busiest   int
	busiestAt time.Time
}

const (
	paceInterval = 50 * time.Millisecond

	// paceMemory is how long a busy interval counts. It is more than a second, so that a burst
	// of jobs that are due every second profits from the burst before.
	paceMemory = 2 * time.Second
)

func (p *pace) add(now time.Time) {
	p.rollOver(now)
	p.current++
}

// count returns how many handlers returned in the last interval, or in this one if that is
// more.
func (p *pace) count(now time.Time) int {
	p.rollOver(now)
	return max(p.previous, p.current)
}

// burst returns how many handlers returned in the busiest interval of the last seconds.
func (p *pace) burst(now time.Time) int {
	p.rollOver(now)
	if now.Sub(p.busiestAt) > paceMemory {
		return 0
	}
	return p.busiest
}

// rollOver begins a new interval when the last one is over.
func (p *pace) rollOver(now time.Time) {
	over := now.Sub(p.since)
	if over < paceInterval {
		return
	}
	if p.previous = 0; over < 2*paceInterval {
		p.previous = p.current
	}
	if p.current > 0 && (p.current >= p.busiest || now.Sub(p.busiestAt) > paceMemory) {
		p.busiest, p.busiestAt = p.current, now
	}
	p.since, p.current = now, 0
}
