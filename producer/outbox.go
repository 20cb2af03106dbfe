package producer

import (
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cronce-io/cronce/internal/core/plans"
)

const (
	// leastInFlight and maxInFlight bound the window of publications in flight, which starts at
	// firstInFlight. While the window is full, slots stay on the agenda.
	leastInFlight = 2 * maxChunk
	firstInFlight = 4 * maxChunk
	maxInFlight   = 32 * maxChunk

	// maxFreeBacklogs bounds the backlogs that are kept for reuse after a burst.
	maxFreeBacklogs = 4 * maxChunk

	// An answer within fastAnswer widens the window, one after slowAnswer narrows it:
	// publications should be answered long before they time out.
	fastAnswer = 500 * time.Millisecond
	slowAnswer = 2 * time.Second

	// warnEvery is the least time between two warnings of the same kind.
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

// item is one slot on its way to the stream, or a batch of standby copies. returnedAt is when
// the agenda returned the slot, by the broker's clock.
type item struct {
	dueSlot
	state      itemState
	returnedAt time.Time
	batch      *batch // for an item on standby, which has no slot of its own

	// audited are the peers that should already have published the slot, if this item is an
	// audit.
	audited []*peer
}

// isOutdated reports whether the catch-up policy has to decide about the slot again. Either the
// slot was on time when the agenda returned it, and is late by now. Or it was late already, and
// the newest late slot of the job may be another one by now.
func (it *item) isOutdated(now time.Time) bool {
	since := it.returnedAt
	if !it.isLate() {
		since = it.Due
	}
	return now.Sub(since) > plans.LateAfter
}

// isDone reports whether no mark has to wait for the item.
func (it *item) isDone() bool {
	return it.state == done || it.state == onStandby && it.batch.isEmpty()
}

// mark holds a position to which the watermark may advance when all items before number are
// done. The position is announced earlier: when the items of this producer's share among them
// are done, if the fleet's epoch is still that of the mark. A partial mark was made while jobs
// were suspended: it is announced for all other jobs, and never offered to the keeper.
type mark struct {
	number uint64
	epoch  uint64
	position
	partial bool
}

// outbox holds the slots that were taken off the agenda, in order, until the stream
// acknowledges them, and the marks between them. Only the session's goroutine uses it, except
// for the answers, which the broker's goroutines add.
type outbox struct {
	p      *Producer
	fleet  *fleet
	agenda *agenda

	// items are in order, and the first one has number first. Items that are done leave at
	// the front only.
	items []*item
	first uint64
	marks []mark

	// passed is the last mark whose items are all done. offered is the last such mark that is
	// not partial.
	offered, passed mark

	// backlogs has an entry for each job with undone items. parked has those of them with
	// waiting items.
	backlogs, parked map[*plannedJob]*backlog
	freeBacklogs     []*backlog // for reuse

	// unacked counts the slots that this producer has to publish and that are not
	// acknowledged. inFlight counts the unanswered publications, and window bounds them.
	// standby counts copies.
	unacked, inFlight, window, standby int

	// oldest is approximately when the oldest unanswered publication was sent. took is how long the
	// last answer took.
	oldest time.Time
	took   time.Duration

	// unannounced is true if slots of this producer's share were taken off the agenda since
	// the share was last announced as acknowledged.
	unannounced bool

	// wokeAt is when this producer last connected or woke up, by the broker's clock. Slots that
	// fell due earlier are not audited: a broker that was restarted may have forgotten their
	// message IDs. peersSilent is true after an audit has found that the active peers do not
	// publish.
	wokeAt      time.Time
	peersSilent bool

	warned  time.Time
	answers answers
}

// backlog is what one job has in the outbox.
type backlog struct {
	items  int     // undone items, and late standby copies, for which ranges wait too
	ranges []*item // wait until no other items are left

	// waiting items are to be published, oldest first. After a failure one of them, the
	// probe, is tried at retryAt. When it is acknowledged, the others follow.
	waiting []*item
	probe   *item
	retry   *backoff.ExponentialBackOff
	retryAt time.Time // by this machine's clock
}

func newOutbox(p *Producer, f *fleet, a *agenda) *outbox {
	return &outbox{
		p: p, fleet: f, agenda: a, backlogs: map[*plannedJob]*backlog{}, parked: map[*plannedJob]*backlog{},
		window: firstInFlight, answers: answers{ready: make(chan struct{}, 1)},
	}
}

// room is how many more slots may be taken off the agenda. The late slots of one job may
// exceed it; they wait for room in the window.
func (o *outbox) room() int { return o.window - o.inFlight }

// add takes in slots that the agenda has returned. It publishes those of this producer's share
// and keeps copies of the others. A range of missed slots waits until the job's other slots in the
// outbox are done.
func (o *outbox) add(slots []dueSlot, now time.Time) {
	for _, s := range slots {
		if p := o.owner(s); p == o.fleet.self {
			o.addItem(&item{dueSlot: s, returnedAt: now})
		} else {
			o.keepCopy(p, s, now)
		}
	}
	o.sealBatches(time.Now()) // the standby delay counts from when this producer's share was sent
}

func (o *outbox) addItem(it *item) {
	o.items = append(o.items, it)
	o.publishOrQueue(it, o.increment(it.line.job))
}

// increment counts one more undone item of the job, and returns the job's backlog.
func (o *outbox) increment(j *plannedJob) *backlog {
	backlog := o.backlogs[j]
	if backlog == nil {
		backlog = o.newBacklog()
		o.backlogs[j] = backlog
	}
	backlog.items++
	return backlog
}

// publishOrQueue publishes an item or queues it. The job's backlog has counted it already.
func (o *outbox) publishOrQueue(it *item, backlog *backlog) {
	o.unannounced = true
	o.unacked++
	switch {
	case it.isRange() && backlog.items > 1:
		backlog.ranges = append(backlog.ranges, it)
	case backlog.retry != nil:
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
	err := o.p.cfg.Slots.Send(it.def.queue, it.message(o.p.cfg.Node), []byte(it.payload()), func(duplicate bool, err error) {
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

// complete marks an item as done.
func (o *outbox) complete(it *item) {
	it.state = done
	o.unacked--
	o.decrement(it.line.job)
}

// decrement counts one of the job's items, or late copies, as done, and ends the job's backoff.
// When only ranges are left, it publishes them.
func (o *outbox) decrement(j *plannedJob) {
	backlog := o.backlogs[j]
	backlog.probe, backlog.retry, backlog.retryAt = nil, nil, time.Time{}
	o.unsuspend(j)
	switch backlog.items--; backlog.items {
	case 0:
		o.removeBacklog(j)
	case len(backlog.ranges):
		ranges := backlog.ranges
		backlog.ranges = nil
		for _, r := range ranges {
			o.publish(r)
		}
	}
}

// retryLater queues a failed item, and sets when its job is tried again.
func (o *outbox) retryLater(it *item, err error) {
	o.p.stats.retried.Add(1)
	backlog, now := o.park(it), time.Now()
	if it != backlog.probe && (backlog.probe != nil || now.Before(backlog.retryAt)) {
		return
	}
	backlog.probe = nil
	if backlog.retry == nil {
		backlog.retry = newBackoff()
		o.agenda.suspend(it.line.job, true)
	}
	delay := backlog.retry.NextBackOff()
	backlog.retryAt = now.Add(delay)
	if delay > time.Second && now.Sub(o.warned) > warnEvery {
		o.warned = now
		o.p.cfg.Logger.Warn("slot cannot be published; trying again", "slot", it.message("").Slot.ID(), "delay", delay, "error", err)
	}
}

// park queues an item with the waiting ones of its job.
func (o *outbox) park(it *item) *backlog {
	backlog := o.backlogs[it.line.job]
	o.parked[it.line.job] = backlog
	at := len(backlog.waiting)
	if at > 0 && it.At.Before(backlog.waiting[0].At) {
		at = 0
	}
	backlog.waiting = slices.Insert(backlog.waiting, at, it)
	it.state = waiting
	return backlog
}

// retryDue publishes waiting items whose retry is due. It returns when to call it again; zero:
// not before an answer arrives. If the catch-up policy has to decide about a slot again, all
// slots of the job return to the agenda, and the outbox takes only the oldest again.
func (o *outbox) retryDue(now time.Time) time.Time {
	var next time.Time
	local := time.Now()
	outdated := func(it *item) bool { return it.isOutdated(now) }
	for j, backlog := range o.parked {
		switch {
		case backlog.probe != nil: // the answer or its timeout will come
		case backlog.items == 0: // its slots returned to the agenda, and the job was removed
			o.removeBacklog(j)
		case backlog.retryAt.After(local):
			if next.IsZero() || backlog.retryAt.Before(next) {
				next = backlog.retryAt
			}
		case slices.ContainsFunc(backlog.waiting, outdated):
			o.returnToAgenda(j)
			for _, s := range o.agenda.probe(j, now) {
				o.addItem(&item{dueSlot: s, returnedAt: now}) // even if a peer owns the job: a copy would end the backoff
			}
			next = local
		default:
			o.resume(j, backlog)
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
	backlog := o.freeBacklogs[n-1]
	o.freeBacklogs = o.freeBacklogs[:n-1]
	return backlog
}

func (o *outbox) removeBacklog(j *plannedJob) {
	if free := o.backlogs[j]; free != nil && len(o.freeBacklogs) < maxFreeBacklogs {
		*free = backlog{}
		o.freeBacklogs = append(o.freeBacklogs, free)
	}
	delete(o.backlogs, j)
	delete(o.parked, j)
	o.unsuspend(j)
}

// resume publishes waiting items of one job, as far as the window has room: one item while the
// job backs off, otherwise all of them.
func (o *outbox) resume(j *plannedJob, backlog *backlog) {
	n := min(len(backlog.waiting), max(o.window-o.inFlight, 0))
	if backlog.retry != nil {
		n = min(n, 1)
	}
	ready := slices.Clone(backlog.waiting[:n])
	backlog.waiting = slices.Delete(backlog.waiting, 0, n)
	if len(backlog.waiting) == 0 {
		delete(o.parked, j)
	}
	if backlog.retry != nil && n > 0 {
		backlog.probe = ready[0]
	}
	for _, it := range ready {
		o.publish(it)
	}
}

// mark records that the watermark may advance to pos when all items so far are done.
func (o *outbox) mark(pos position) {
	m := mark{o.first + uint64(len(o.items)), o.fleet.epoch, pos, len(o.agenda.suspended) > 0}
	if n := len(o.marks); n > 0 && o.marks[n-1].number == m.number && o.marks[n-1].partial == m.partial {
		o.marks[n-1] = m
		return
	}
	o.marks = append(o.marks, m)
}

// advance removes the items that are done, and returns the newest position to which the watermark
// may advance. ok is false if there is no new one.
func (o *outbox) advance() (pos position, ok bool) {
	n := 0
	for n < len(o.items) && o.items[n].isDone() {
		o.items[n] = nil
		n++
	}
	o.items, o.first = o.items[n:], o.first+uint64(n)
	for len(o.marks) > 0 && o.marks[0].number <= o.first {
		o.passed = o.marks[0]
		if !o.passed.partial {
			o.offered, ok = o.passed, true
		}
		o.marks = o.marks[1:]
	}
	return o.offered.position, ok
}
