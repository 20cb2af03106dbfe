package producer

import (
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// leastInFlight and maxInFlight bound the window of publications that are not
	// answered yet, which begins with firstInFlight. Past it nothing more is taken off
	// the board.
	leastInFlight = 2 * maxChunk
	firstInFlight = 4 * maxChunk
	maxInFlight   = 32 * maxChunk

	// maxSpare bounds what is kept of a burst for the next one.
	maxSpare = 4 * maxChunk

	// quickly is an answer for which the window widens, slowly one for which it
	// narrows: what is in flight should be answered long before it is given up.
	quickly = 500 * time.Millisecond
	slowly  = 2 * time.Second

	// complainEvery keeps a broker that refuses everything from filling the log.
	complainEvery = 10 * time.Second
)

type itemState int

const (
	held     itemState = iota // a range that waits for the job's other slots
	inFlight                  // published, not answered
	waiting                   // failed, or without a place in flight yet
	standing                  // copies that are held for the producer whose share they are
	settled                   // acknowledged, or back on the board
)

// item is one slot on its way to the stream, or a batch of copies that stand by.
type item struct {
	dueSlot
	state  itemState
	judged time.Time
	batch  *batch // of an item that is standing, and has no slot of its own

	// audited are the peers that should have published the slot before.
	audited []*peer
}

// late reports whether the item's judgement is out of date: a slot that was to
// be published on time no longer is, or the newest missed slot may be another
// one by now.
func (it *item) late(now time.Time, late time.Duration) bool {
	since := it.judged
	if !it.isLate() {
		since = it.Due
	}
	return now.Sub(since) > late
}

// isSettled reports whether no mark has to wait for the item any more.
func (it *item) isSettled() bool {
	return it.state == settled || it.state == standing && it.batch.isEmpty()
}

// mark says that the position may be claimed when all items before the given
// number are settled, and announced when those of our own share are, as long as
// the epoch lasts. A partial one was made while jobs were held on the board: it is
// announced for all others, and never claimed.
type mark struct {
	number uint64
	epoch  uint64
	position
	partial bool
}

// outbox holds the slots that were taken off the board until the stream has
// acknowledged them, in the order in which they came, and the marks between
// them. Only the shift's goroutine uses it; answers are collected by another.
type outbox struct {
	p     *Producer
	fleet *fleet
	board *board

	// items are in order; the first is number first. Settled ones leave at the
	// front only.
	items []*item
	first uint64
	marks []mark

	// claimed is the last mark that was passed on, passed the last one, partial or not,
	// whose items are all settled.
	claimed, passed mark

	// tasks has the jobs that have anything unsettled, failing those of them
	// that have anything waiting.
	tasks, failing map[*task]*unsettled
	spare          []*unsettled // to be used again

	// open counts the slots that are our duty and not settled; some of them are
	// flying or waiting. standing counts the copies that are held. window is how many
	// may fly.
	open, flying, waiting, standing, window int

	// oldest is when the oldest publication that is not answered was sent, or the
	// one before it; took is how long the last answer took.
	oldest time.Time
	took   time.Duration

	// owes says that slots of our share were handed out since all of it was last
	// announced to be acknowledged.
	owes bool

	// wokeAt is when this producer last found a broker, or woke up, by the broker's clock:
	// a broker that was restarted does not know what was published before. found says
	// that an audit has found peers that do not publish.
	wokeAt time.Time
	found  bool

	complained time.Time
	answers    answers
}

// unsettled is what one job has in the outbox: items, and copies that stand by, of
// these only such as a range must wait for.
type unsettled struct {
	items int
	held  []*item

	// waiting is to be published, oldest first. After a failure one of it is
	// tried at retryAt, the probe; when that is acknowledged all others follow.
	waiting []*item
	probe   *item
	retry   *backoff.ExponentialBackOff
	retryAt time.Time // on this machine's clock
}

func newOutbox(p *Producer, f *fleet, b *board) *outbox {
	return &outbox{
		p: p, fleet: f, board: b, tasks: map[*task]*unsettled{}, failing: map[*task]*unsettled{},
		window: firstInFlight, answers: answers{came: make(chan struct{}, 1)},
	}
}

// room is how many more slots may be taken off the board. One job's judgement
// may exceed it: what then has no place in flight waits for one.
func (o *outbox) room() int { return o.window - o.flying }

// add takes slots over from the board and publishes them, or holds them for the
// producers whose share they are. A range of missed slots waits until the job's
// other late slots are acknowledged (see the package comment).
func (o *outbox) add(slots []dueSlot, now time.Time) {
	for _, s := range slots {
		if p := o.holder(s); p != o.fleet.self {
			o.hold(p, s, now)
			continue
		}
		it := &item{dueSlot: s, judged: now}
		o.items = append(o.items, it)
		o.begin(it, o.count(s.line.task))
	}
	o.seal(time.Now()) // the delay counts from when our own share was sent
}

// count adds one to what the job has unsettled.
func (o *outbox) count(t *task) *unsettled {
	u := o.tasks[t]
	if u == nil {
		u = o.newUnsettled()
		o.tasks[t] = u
	}
	u.items++
	return u
}

// begin makes an item, which is counted, a duty of ours.
func (o *outbox) begin(it *item, u *unsettled) {
	o.owes = true
	o.open++
	switch {
	case it.Range && u.items > 1:
		u.held = append(u.held, it)
	case u.retry != nil:
		o.wait(it) // behind those that fail
	default:
		o.publish(it)
	}
}

func (o *outbox) publish(it *item) {
	if o.flying >= o.window {
		o.wait(it)
		return
	}
	it.state = inFlight
	if err := o.send(it); err != nil {
		o.again(it, err)
	}
}

// send sends the item's slot on its way to the stream.
func (o *outbox) send(it *item) error {
	sent := time.Now()
	err := o.p.cfg.Slots.Send(it.def.queue, it.message(o.p.cfg.Node), []byte(it.def.payload), func(duplicate bool, err error) {
		o.answers.put(answer{it, sent, duplicate, err})
	})
	if err != nil {
		return err
	}
	if o.flying == 0 {
		o.oldest = sent
	}
	o.flying++
	return nil
}

// answered takes in what the broker has said since it was last called.
func (o *outbox) answered() {
	all := o.answers.take()
	for _, a := range all {
		if len(a.audited) > 0 {
			o.judge(a)
		}
		switch {
		case a.item.state == settled: // it is back on the board
		case a.err != nil:
			o.again(a.item, a.err)
		default:
			o.p.stats.acknowledged(a.item, a.duplicate)
			o.p.cfg.Handed(a.item.def.queue, a.item.message(o.p.cfg.Node))
			o.settle(a.item)
		}
	}
	o.flying -= len(all)
	if n := len(all); n > 0 {
		o.oldest, o.took = all[n-1].sent, time.Since(all[n-1].sent)
		o.adapt(n, all[n-1].err)
	}
}

// adapt fits the window to how the broker took the last of those that were just
// answered. One that stores at once gets as many at a time as it can use; one that is
// slow, or refuses them (a server keeps so many for a stream, and no more), fewer.
func (o *outbox) adapt(answered int, err error) {
	switch {
	case err != nil || o.took > slowly:
		o.window = max(o.window-answered, leastInFlight)
	case o.took < quickly:
		o.window = min(o.window+answered, maxInFlight)
	}
}

// settle takes an item out of the count.
func (o *outbox) settle(it *item) {
	it.state = settled
	o.open--
	o.uncount(it.line.task)
}

// uncount takes one off what the job has unsettled, and sends its ranges when only
// they are left.
func (o *outbox) uncount(t *task) {
	u := o.tasks[t]
	u.probe, u.retry, u.retryAt = nil, nil, time.Time{}
	o.free(t)
	switch u.items--; u.items {
	case 0:
		o.forget(t)
	case len(u.held):
		ranges := u.held
		u.held = nil
		for _, r := range ranges {
			o.publish(r)
		}
	}
}

// again has an item published again, later.
func (o *outbox) again(it *item, err error) {
	o.p.stats.retried.Add(1)
	u, now := o.wait(it), time.Now()
	if it != u.probe && (u.probe != nil || now.Before(u.retryAt)) {
		return
	}
	u.probe = nil
	if u.retry == nil {
		u.retry = newBackOff()
		o.board.hold(it.line.task, true)
	}
	delay := u.retry.NextBackOff()
	u.retryAt = now.Add(delay)
	if delay > time.Second && now.Sub(o.complained) > complainEvery {
		o.complained = now
		o.p.cfg.Logger.Warn("a slot cannot be published; trying again", "slot", it.message("").Slot.ID(), "in", delay, "err", err)
	}
}

// wait puts an item among those of its job that wait.
func (o *outbox) wait(it *item) *unsettled {
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

// repeat publishes what has waited long enough, and returns when to look again:
// zero for not before an answer comes. A job that has a slot whose judgement is
// out of date goes back to the board as a whole.
func (o *outbox) repeat(b *board, now time.Time) time.Time {
	var next time.Time
	local := time.Now()
	late := func(it *item) bool { return it.late(now, o.p.cfg.Late) }
	for t, u := range o.failing {
		switch {
		case u.probe != nil: // its answer comes, or its timeout
		case u.items == 0: // given back, and not handed out again: the job is gone
			o.forget(t)
		case u.retryAt.After(local):
			if next.IsZero() || u.retryAt.Before(next) {
				next = u.retryAt
			}
		case slices.ContainsFunc(u.waiting, late):
			o.giveBack(b, t)
			o.add(b.probe(t, now), now)
			next = local
		default:
			o.resume(t, u)
		}
	}
	return next
}

// newUnsettled is one that was forgotten, if there is any: a burst has as many as it
// has jobs, one after the other.
func (o *outbox) newUnsettled() *unsettled {
	n := len(o.spare)
	if n == 0 {
		return &unsettled{}
	}
	u := o.spare[n-1]
	o.spare = o.spare[:n-1]
	return u
}

func (o *outbox) forget(t *task) {
	if u := o.tasks[t]; u != nil && len(o.spare) < maxSpare {
		*u = unsettled{}
		o.spare = append(o.spare, u)
	}
	delete(o.tasks, t)
	delete(o.failing, t)
	o.free(t)
}

// free lets the slots of a job that was held go again. Until they have been handed
// out, no mark that was made without them holds.
func (o *outbox) free(t *task) {
	if !t.held {
		return
	}
	o.board.hold(t, false)
	o.marks = slices.DeleteFunc(o.marks, func(m mark) bool { return m.partial })
	if o.passed.partial {
		o.passed = o.claimed
	}
}

// resume publishes what waits of one job, as far as there is room in flight: one
// slot after a failure, all of them after a success.
func (o *outbox) resume(t *task, u *unsettled) {
	n := min(len(u.waiting), max(o.window-o.flying, 0))
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

// giveBack returns what is not settled to the board, of one job or of all (nil):
// it will be handed out again, and judged anew. Marks are dropped, since they
// claim what is on the board again; the next one claims it all. One job keeps
// its retry: it has been failing, and goes on with one try at a time.
func (o *outbox) giveBack(b *board, t *task) {
	for _, it := range o.items {
		switch {
		case it.state == standing:
			o.dismiss(it.batch, b, t)
			continue
		case it.state == settled || t != nil && it.line.task != t:
			continue
		case it.state == waiting:
			o.waiting--
		}
		it.state = settled
		o.open--
		b.back(it.dueSlot)
	}
	for _, p := range o.fleet.peers {
		p.standing = slices.DeleteFunc(p.standing, (*batch).isEmpty)
	}
	o.marks = nil
	if t == nil {
		for held := range b.held {
			o.free(held)
		}
		clear(o.tasks)
		clear(o.failing)
	} else if u := o.tasks[t]; u != nil {
		u.items, u.held, u.waiting, u.probe = 0, nil, nil, nil
	}
}

// mark notes that pos may be claimed when all items so far are settled.
func (o *outbox) mark(pos position) {
	m := mark{o.first + uint64(len(o.items)), o.fleet.epoch, pos, len(o.board.held) > 0}
	if n := len(o.marks); n > 0 && o.marks[n-1].number == m.number && o.marks[n-1].partial == m.partial {
		o.marks[n-1] = m
		return
	}
	o.marks = append(o.marks, m)
}

// claim returns the newest position that may be claimed, if there is a new one:
// every item before its mark is settled.
func (o *outbox) claim() (pos position, ok bool) {
	n := 0
	for n < len(o.items) && o.items[n].isSettled() {
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
