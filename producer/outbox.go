package producer

import (
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// leastInFlight and maxInFlight bound the window of publications in flight, which
	// starts at firstInFlight. A full window leaves slots on the agenda.
	leastInFlight = 2 * maxChunk
	firstInFlight = 4 * maxChunk
	maxInFlight   = 32 * maxChunk

	// maxFreeBacklogs bounds the backlogs that are kept for reuse after a burst.
	maxFreeBacklogs = 4 * maxChunk

	// An answer within fastAnswer widens the window, one after slowAnswer narrows it:
	// publications should be answered long before they time out.
	fastAnswer = 500 * time.Millisecond
	slowAnswer = 2 * time.Second

	// warnEvery is the least time between two warnings of a kind.
	warnEvery = 10 * time.Second
)

type itemState int

const (
	deferred  itemState = iota // a range that waits for the job's other slots
	inFlight                   // published, not answered
	waiting                    // failed, or waiting for room in the window
	onStandby                  // a batch of copies kept for their owner
	done                       // acknowledged, or back on the agenda
)

// item is one slot on its way to the stream, or a batch of standby copies.
type item struct {
	dueSlot
	state  itemState
	judged time.Time
	batch  *batch // for an item on standby, which has no slot of its own

	// audited are the peers that should already have published the slot.
	audited []*peer
}

// isOutdated reports whether the slot has to be judged again. A slot judged as on time is
// late by now, or the newest missed slot may be another one.
func (it *item) isOutdated(now time.Time, late time.Duration) bool {
	since := it.judged
	if !it.isLate() {
		since = it.Due
	}
	return now.Sub(since) > late
}

// isDone reports whether no mark has to wait for the item.
func (it *item) isDone() bool {
	return it.state == done || it.state == onStandby && it.batch.isEmpty()
}

// mark holds a position that may be claimed when all items before number are done. It may
// be announced when the items of the own share are, while the epoch lasts. A partial mark
// was made while jobs were suspended: it is announced for all other jobs, and never
// claimed.
type mark struct {
	number uint64
	epoch  uint64
	position
	partial bool
}

// outbox holds the slots that were taken off the agenda, in order, until the stream
// acknowledges them, and the marks between them. Only the session's goroutine uses it. The
// broker's goroutines add answers.
type outbox struct {
	p      *Producer
	fleet  *fleet
	agenda *agenda

	// items are in order, and the first one has number first. Items that are done leave at
	// the front only.
	items []*item
	first uint64
	marks []mark

	// passed is the last mark whose items are all done, claimed the last one of these that
	// is not partial.
	claimed, passed mark

	// tasks holds the backlogs of the jobs with undone items, failing those of them with waiting
	// items.
	tasks, failing map[*task]*backlog
	freeBacklogs   []*backlog // for reuse

	// unacked counts the slots that this producer has to publish and that are not
	// acknowledged; some of them are in flight or waiting. standby counts copies. window is
	// how many publications may be in flight.
	unacked, inFlight, waiting, standby, window int

	// oldest is about when the oldest unanswered publication was sent. took is how long the last
	// answer took.
	oldest time.Time
	took   time.Duration

	// unannounced is true if slots of the own share were taken off the agenda since the
	// share was last announced as acknowledged.
	unannounced bool

	// wokeAt is when this producer last connected or woke up, by the broker's clock. A
	// broker that was restarted may have forgotten earlier message IDs. foundFalse is true
	// after an audit has found that the active peers do not publish.
	wokeAt     time.Time
	foundFalse bool

	warned  time.Time
	answers answers
}

// backlog is what one job has in the outbox: its undone items, and those standby copies
// that a range must wait for.
type backlog struct {
	items  int
	ranges []*item

	// waiting items are to be published, oldest first. After a failure one of them, the
	// probe, is tried at retryAt. When it is acknowledged, the others follow.
	waiting []*item
	probe   *item
	retry   *backoff.ExponentialBackOff
	retryAt time.Time // by this machine's clock
}

func newOutbox(p *Producer, f *fleet, b *agenda) *outbox {
	return &outbox{
		p: p, fleet: f, agenda: b, tasks: map[*task]*backlog{}, failing: map[*task]*backlog{},
		window: firstInFlight, answers: answers{ready: make(chan struct{}, 1)},
	}
}

// room is how many more slots may be taken off the agenda. The late slots of one job may
// exceed it; they wait for room in the window.
func (o *outbox) room() int { return o.window - o.inFlight }

// add takes in slots that the agenda has returned. It publishes those of the own share and keeps
// copies of the others. A range of missed slots waits until the job's other slots in the outbox
// are done.
func (o *outbox) add(slots []dueSlot, now time.Time) {
	for _, s := range slots {
		if p := o.owner(s); p != o.fleet.self {
			o.keepCopy(p, s, now)
			continue
		}
		it := &item{dueSlot: s, judged: now}
		o.items = append(o.items, it)
		o.start(it, o.increment(s.line.task))
	}
	o.sealBatches(time.Now()) // the standby delay counts from when the own share was sent
}

// increment counts one more undone item of the job, and returns the job's backlog.
func (o *outbox) increment(t *task) *backlog {
	u := o.tasks[t]
	if u == nil {
		u = o.newBacklog()
		o.tasks[t] = u
	}
	u.items++
	return u
}

// start publishes an item or queues it. Its backlog u has counted it already.
func (o *outbox) start(it *item, u *backlog) {
	o.unannounced = true
	o.unacked++
	switch {
	case it.Range && u.items > 1:
		u.ranges = append(u.ranges, it)
	case u.retry != nil:
		o.park(it) // behind those that fail
	default:
		o.publish(it)
	}
}

func (o *outbox) publish(it *item) {
	if o.inFlight >= o.window {
		o.park(it)
		return
	}
	it.state = inFlight
	if err := o.send(it); err != nil {
		o.retryLater(it, err)
	}
}

// send sends the item's slot to the stream.
func (o *outbox) send(it *item) error {
	sent := time.Now()
	err := o.p.cfg.Slots.Send(it.def.queue, it.message(o.p.cfg.Node), []byte(it.def.payload), func(duplicate bool, err error) {
		o.answers.put(answer{it, sent, duplicate, err})
	})
	if err != nil {
		return err
	}
	if o.inFlight == 0 {
		o.oldest = sent
	}
	o.inFlight++
	return nil
}

// answered takes in the broker's answers since the last call.
func (o *outbox) answered() {
	all := o.answers.take()
	for _, a := range all {
		if len(a.audited) > 0 {
			o.concludeAudit(a)
		}
		switch {
		case a.item.state == done: // it is back on the agenda
		case a.err != nil:
			o.retryLater(a.item, a.err)
		default:
			o.p.stats.acknowledged(a.item, a.duplicate)
			o.p.cfg.Handed(a.item.def.queue, a.item.message(o.p.cfg.Node))
			o.complete(a.item)
		}
	}
	o.inFlight -= len(all)
	if n := len(all); n > 0 {
		o.oldest, o.took = all[n-1].sent, time.Since(all[n-1].sent)
		o.adapt(n, all[n-1].err)
	}
}

// adapt fits the window to the last of the answers that just arrived. A fast broker gets as
// many publications as it can use. One that is slow or refuses some gets fewer: a server
// bounds the messages of a stream that it has yet to store.
func (o *outbox) adapt(answered int, err error) {
	switch {
	case err != nil || o.took > slowAnswer:
		o.window = max(o.window-answered, leastInFlight)
	case o.took < fastAnswer:
		o.window = min(o.window+answered, maxInFlight)
	}
}

// complete marks an item as done.
func (o *outbox) complete(it *item) {
	it.state = done
	o.unacked--
	o.decrement(it.line.task)
}

// decrement counts one undone item of the job less, and ends the job's backoff. When only ranges
// are left, it publishes them.
func (o *outbox) decrement(t *task) {
	u := o.tasks[t]
	u.probe, u.retry, u.retryAt = nil, nil, time.Time{}
	o.unsuspend(t)
	switch u.items--; u.items {
	case 0:
		o.removeBacklog(t)
	case len(u.ranges):
		ranges := u.ranges
		u.ranges = nil
		for _, r := range ranges {
			o.publish(r)
		}
	}
}

// retryLater queues a failed item, and sets when its job is tried again.
func (o *outbox) retryLater(it *item, err error) {
	o.p.stats.retried.Add(1)
	u, now := o.park(it), time.Now()
	if it != u.probe && (u.probe != nil || now.Before(u.retryAt)) {
		return
	}
	u.probe = nil
	if u.retry == nil {
		u.retry = newBackOff()
		o.agenda.suspend(it.line.task, true)
	}
	delay := u.retry.NextBackOff()
	u.retryAt = now.Add(delay)
	if delay > time.Second && now.Sub(o.warned) > warnEvery {
		o.warned = now
		o.p.cfg.Logger.Warn("slot cannot be published; trying again", "slot", it.message("").Slot.ID(), "delay", delay, "error", err)
	}
}

// park queues an item with the waiting ones of its job.
func (o *outbox) park(it *item) *backlog {
	u := o.tasks[it.line.task]
	o.failing[it.line.task] = u
	at := len(u.waiting)
	if at > 0 && it.At.Before(u.waiting[0].At) {
		at = 0
	}
	u.waiting = slices.Insert(u.waiting, at, it)
	it.state = waiting
	o.waiting++
	return u
}

// retryDue publishes waiting items whose retry is due. It returns when to call it again; zero:
// not before an answer arrives. If a slot of a job has to be judged again, all slots of the
// job return to the agenda, and the outbox takes only the oldest again.
func (o *outbox) retryDue(b *agenda, now time.Time) time.Time {
	var next time.Time
	local := time.Now()
	late := func(it *item) bool { return it.isOutdated(now, o.p.cfg.Late) }
	for t, u := range o.failing {
		switch {
		case u.probe != nil: // the answer or its timeout will come
		case u.items == 0: // returned to the agenda and not taken off again: the job was removed
			o.removeBacklog(t)
		case u.retryAt.After(local):
			if next.IsZero() || u.retryAt.Before(next) {
				next = u.retryAt
			}
		case slices.ContainsFunc(u.waiting, late):
			o.returnToAgenda(b, t)
			o.add(b.probe(t, now), now)
			next = local
		default:
			o.resume(t, u)
		}
	}
	return next
}

// newBacklog reuses a backlog if it can: a burst has one for each job.
func (o *outbox) newBacklog() *backlog {
	n := len(o.freeBacklogs)
	if n == 0 {
		return &backlog{}
	}
	u := o.freeBacklogs[n-1]
	o.freeBacklogs = o.freeBacklogs[:n-1]
	return u
}

func (o *outbox) removeBacklog(t *task) {
	if u := o.tasks[t]; u != nil && len(o.freeBacklogs) < maxFreeBacklogs {
		*u = backlog{}
		o.freeBacklogs = append(o.freeBacklogs, u)
	}
	delete(o.tasks, t)
	delete(o.failing, t)
	o.unsuspend(t)
}

// unsuspend ends the suspension of a task. Its slots are still on the agenda, so marks that
// were made without them are void.
func (o *outbox) unsuspend(t *task) {
	if !t.suspended {
		return
	}
	o.agenda.suspend(t, false)
	o.marks = slices.DeleteFunc(o.marks, func(m mark) bool { return m.partial })
	if o.passed.partial {
		o.passed = o.claimed
	}
}

// resume publishes waiting items of one job, as far as the window has room: one item while the
// job backs off, and else all of them.
func (o *outbox) resume(t *task, u *backlog) {
	n := min(len(u.waiting), max(o.window-o.inFlight, 0))
	if u.retry != nil {
		n = min(n, 1)
	}
	ready := slices.Clone(u.waiting[:n])
	u.waiting = slices.Delete(u.waiting, 0, n)
	if o.waiting -= n; len(u.waiting) == 0 {
		delete(o.failing, t)
	}
	if u.retry != nil && n > 0 {
		u.probe = ready[0]
	}
	for _, it := range ready {
		o.publish(it)
	}
}

// returnToAgenda returns undone slots to the agenda, of one job or of all (nil). They are
// judged again when they are due. All marks are deleted, since the agenda has slots again
// that they claim. A single job keeps its backoff: it goes on with one attempt at a time.
func (o *outbox) returnToAgenda(b *agenda, t *task) {
	for _, it := range o.items {
		switch {
		case it.state == onStandby:
			o.returnBatch(it.batch, b, t)
			continue
		case it.state == done || t != nil && it.line.task != t:
			continue
		case it.state == waiting:
			o.waiting--
		}
		it.state = done
		o.unacked--
		b.takeBack(it.dueSlot)
	}
	for _, p := range o.fleet.peers {
		p.standby = slices.DeleteFunc(p.standby, (*batch).isEmpty)
	}
	o.marks = nil
	if t == nil {
		for other := range b.suspended {
			o.unsuspend(other)
		}
		clear(o.tasks)
		clear(o.failing)
	} else if u := o.tasks[t]; u != nil {
		u.items, u.ranges, u.waiting, u.probe = 0, nil, nil, nil
	}
}

// mark records that pos may be claimed when all items so far are done.
func (o *outbox) mark(pos position) {
	m := mark{o.first + uint64(len(o.items)), o.fleet.epoch, pos, len(o.agenda.suspended) > 0}
	if n := len(o.marks); n > 0 && o.marks[n-1].number == m.number && o.marks[n-1].partial == m.partial {
		o.marks[n-1] = m
		return
	}
	o.marks = append(o.marks, m)
}

// claim returns the newest position that may be claimed. ok is false if there is no new
// one.
func (o *outbox) claim() (pos position, ok bool) {
	n := 0
	for n < len(o.items) && o.items[n].isDone() {
		o.items[n] = nil
		n++
	}
	o.items, o.first = o.items[n:], o.first+uint64(n)
	for len(o.marks) > 0 && o.marks[0].number <= o.first {
		o.passed = o.marks[0]
		if !o.passed.partial {
			o.claimed, ok = o.passed, true
		}
		o.marks = o.marks[1:]
	}
	return o.claimed.position, ok
}
