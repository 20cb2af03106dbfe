package producer

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/cronce-io/cronce/job"
)

const (
	// maxInFlight bounds the publications that are not answered yet, and
	// maxWaiting those together with the ones that wait to be repeated: past
	// that nothing more is taken off the board.
	maxInFlight = 4096
	maxWaiting  = 4 * maxInFlight

	// answerTimeout bounds the wait for one answer. No answer is an unknown,
	// and is settled as every failure is: the same message again.
	answerTimeout = 10 * time.Second

	// complainEvery keeps a broker that refuses everything from filling the log.
	complainEvery = 10 * time.Second
)

type itemState int

const (
	held     itemState = iota // a range that waits for the job's other slots
	inFlight                  // published, not answered
	waiting                   // failed, to be published again at retryAt
	settled                   // acknowledged, or back on the board
)

// item is one slot on its way to the stream.
type item struct {
	dueSlot
	state   itemState
	judged  time.Time // on the broker's clock
	retry   *backoff.ExponentialBackOff
	retryAt time.Time // on this machine's
}

// late reports whether the item's judgement is out of date: a slot that was to
// be published on time no longer is, or the newest missed slot may be another
// one by now.
func (it *item) late(now time.Time, late time.Duration) bool {
	since := it.judged
	if !it.CaughtUp && it.Missed == 0 {
		since = it.Due
	}
	return now.Sub(since) > late
}

// mark says that the position may be claimed when all items before the given
// number are settled.
type mark struct {
	number uint64
	position
}

// outbox holds the slots that were taken off the board until the stream has
// acknowledged them, in the order in which they came, and the marks between
// them. Only the shift's goroutine uses it; answers are collected by another.
type outbox struct {
	p *Producer

	// items are in order; the first is number first. Settled ones leave at the
	// front only.
	items []*item
	first uint64
	marks []mark

	// tasks counts what is not settled, for jobs that have anything.
	tasks map[*task]*unsettled

	flying, waiting int
	complained      time.Time
	flights         chan flight
	answers         chan answer
}

type unsettled struct {
	items int
	held  []*item
}

type flight struct {
	*item
	wait func(context.Context) (bool, error)
}

type answer struct {
	*item
	duplicate bool
	err       error
}

func newOutbox(p *Producer) *outbox {
	return &outbox{
		p: p, tasks: map[*task]*unsettled{},
		flights: make(chan flight, maxInFlight), answers: make(chan answer, maxInFlight),
	}
}

// collect awaits the answers, in the order in which the slots were published.
func (o *outbox) collect(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-o.flights:
			wait, cancel := context.WithTimeout(ctx, answerTimeout)
			duplicate, err := f.wait(wait)
			cancel()
			o.answers <- answer{f.item, duplicate, err} // has room for all that fly
		}
	}
}

// room is how many more slots may be taken off the board. One job's judgement
// may exceed it: what then has no place in flight waits for one.
func (o *outbox) room() int { return min(maxInFlight-o.flying, maxWaiting-o.flying-o.waiting) }

// add takes slots over from the board and publishes them. A range of missed
// slots waits until the job's other slots are acknowledged (see the package
// comment).
func (o *outbox) add(slots []dueSlot, now time.Time) {
	for _, s := range slots {
		it := &item{dueSlot: s, judged: now}
		o.items = append(o.items, it)
		u := o.tasks[s.line.task]
		if u == nil {
			u = &unsettled{}
			o.tasks[s.line.task] = u
		}
		if u.items++; it.Range && u.items > 1 {
			u.held = append(u.held, it)
			continue
		}
		o.publish(it)
	}
}

func (o *outbox) publish(it *item) {
	if o.flying >= maxInFlight {
		it.state = waiting
		o.waiting++
		return
	}
	it.state = inFlight
	wait, err := o.p.cfg.Slots.Publish(it.def.queue, it.message(o.p.cfg.Node), it.def.payload)
	if err != nil {
		o.again(it, err)
		return
	}
	o.flying++
	o.flights <- flight{it, wait} // has room: flying is bounded
}

func (it *item) message(node string) job.Message {
	slot := job.NewSlot(it.def.name, it.At)
	slot.Range = it.Range
	return job.Message{
		Slot: slot, JobRevision: it.def.revision, Node: node, Due: it.Due,
		CaughtUp: it.CaughtUp, Missed: it.Missed, MissedLast: it.Last,
	}
}

// answered takes in what the broker said.
func (o *outbox) answered(a answer) {
	o.flying--
	switch {
	case a.item.state == settled: // it is back on the board
	case a.err != nil:
		o.again(a.item, a.err)
	default:
		o.p.stats.acknowledged(a.item, a.duplicate)
		o.settle(a.item)
	}
}

// settle takes an item out of the count, and sends the job's ranges when only
// they are left.
func (o *outbox) settle(it *item) {
	it.state = settled
	t := it.line.task
	u := o.tasks[t]
	switch u.items--; u.items {
	case 0:
		delete(o.tasks, t)
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
	if it.retry == nil {
		it.retry = newBackOff()
		it.retry.Reset()
	}
	o.p.stats.retried.Add(1)
	now, delay := time.Now(), it.retry.NextBackOff()
	if delay > time.Second && now.Sub(o.complained) > complainEvery {
		o.complained = now
		o.p.cfg.Logger.Warn("a slot cannot be published; trying again", "slot", it.message("").Slot.ID(), "in", delay, "err", err)
	}
	it.state, it.retryAt = waiting, now.Add(delay)
	o.waiting++
}

// repeat publishes what has waited long enough, and returns when to look again:
// zero for not at all. A job that has a slot whose judgement is out of date goes
// back to the board as a whole.
func (o *outbox) repeat(b *board, now time.Time) time.Time {
	var next time.Time
	if o.waiting == 0 {
		return next
	}
	local := time.Now()
	for _, it := range o.items {
		switch {
		case it.state != waiting:
		case it.late(now, o.p.cfg.Late):
			o.giveBack(b, it.line.task)
		case it.retryAt.After(local):
			if next.IsZero() || it.retryAt.Before(next) {
				next = it.retryAt
			}
		case o.flying < maxInFlight:
			o.waiting--
			o.publish(it)
		}
	}
	return next
}

// giveBack returns what is not settled to the board, of one job or of all (nil):
// it will be handed out again, and judged anew. Marks are dropped, since they
// claim what is on the board again; the next one claims it all.
func (o *outbox) giveBack(b *board, t *task) {
	for _, it := range o.items {
		if it.state == settled || t != nil && it.line.task != t {
			continue
		}
		if it.state == waiting {
			o.waiting--
		}
		it.state = settled
		b.back(it.dueSlot)
		delete(o.tasks, it.line.task)
	}
	o.marks = nil
}

// mark notes that pos may be claimed when all items so far are settled.
func (o *outbox) mark(pos position) {
	number := o.first + uint64(len(o.items))
	if n := len(o.marks); n > 0 && o.marks[n-1].number == number {
		o.marks[n-1].position = pos
		return
	}
	o.marks = append(o.marks, mark{number, pos})
}

// claim returns the newest position that may be claimed, if there is a new one:
// every item before its mark is settled.
func (o *outbox) claim() (pos position, ok bool) {
	n := 0
	for n < len(o.items) && o.items[n].state == settled {
		o.items[n] = nil
		n++
	}
	o.items, o.first = o.items[n:], o.first+uint64(n)
	for len(o.marks) > 0 && o.marks[0].number <= o.first {
		pos, ok = o.marks[0].position, true
		o.marks = o.marks[1:]
	}
	return pos, ok
}
