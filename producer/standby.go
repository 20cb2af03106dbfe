package producer

import (
	"slices"
	"time"
)

const (
	// patience is how long a copy is held for a producer that shows life and
	// agrees with us: it is publishing as fast as the broker takes it, and our
	// copies would only add to that.
	patience = 2 * time.Second

	// maxStanding bounds the copies that are held; past it they are published.
	maxStanding = 1 << 18

	// maxExcept bounds the jobs that an announcement leaves out.
	maxExcept = 100
)

// batch is copies of slots that are held for a peer, handed out at one time. One item
// in the outbox stands for all of them.
type batch struct {
	copies []spare

	// judged is when they were handed out, by the broker's clock, since when by this
	// machine's; zero while there may come more.
	judged, since time.Time

	// due is when the first of them fell due, registry the digest of the definitions
	// that they were computed from.
	due      time.Time
	registry uint64
}

// spare is a copy of a slot, of which nearly always nothing comes: four in five of what
// a producer computes are such, so that it is no larger than need be.
type spare struct {
	line             *line
	def              *definition
	at               int64 // in seconds since 1970
	shard, shards    uint16
	caughtUp, missed bool
	audit            bool // published although the peer announced it
}

func spareOf(s dueSlot) spare {
	return spare{s.line, s.def, s.At.Unix(), uint16(s.shard), uint16(s.shards), s.CaughtUp, s.Missed > 0, false}
}

// slot is what the copy was made of, which is not a range.
func (c *spare) slot() dueSlot {
	s := dueSlot{line: c.line, def: c.def, shard: int(c.shard), shards: int(c.shards)}
	s.At = time.Unix(c.at, 0).UTC()
	s.Due, s.CaughtUp = s.At.Add(c.line.schedule.Delay()), c.caughtUp
	if c.missed {
		s.Missed = 1
	}
	return s
}

// holder is the producer that a slot is left to, self if to nobody. Ranges are not:
// they stand for other slots than those of whoever publishes a range of the same
// name.
func (o *outbox) holder(s dueSlot) *peer {
	if s.Range || o.standing >= maxStanding {
		return o.fleet.self
	}
	return o.fleet.first(s.def.name)
}

// hold keeps a copy for the producer whose share it is, unless that one has said
// already that it is stored.
func (o *outbox) hold(p *peer, s dueSlot, now time.Time) {
	if o.fleet.agrees(p) && !s.Due.After(p.last.Time) && !slices.Contains(p.last.Except, s.def.name) {
		if !o.isAudit(p, s) {
			o.spared(p, s)
			return
		}
		it := &item{dueSlot: s, judged: now, audited: []*peer{p}}
		o.items = append(o.items, it)
		o.begin(it, o.count(s.line.task))
		return
	}
	n := len(p.standing)
	if n == 0 || !p.standing[n-1].since.IsZero() {
		b := &batch{judged: now, due: s.Due, registry: o.fleet.registry}
		p.standing = append(p.standing, b)
		o.items = append(o.items, &item{state: standing, batch: b})
		n++
	}
	b := p.standing[n-1]
	b.due = earlier(b.due, s.Due)
	b.copies = append(b.copies, spareOf(s))
	o.standing++
	if s.isLate() {
		o.count(s.line.task)
	}
}

// seal ends the batches of the copies that were handed out at one time.
func (o *outbox) seal(since time.Time) {
	for _, p := range o.fleet.active {
		if n := len(p.standing); n > 0 && p.standing[n-1].since.IsZero() {
			p.standing[n-1].since = since
		}
	}
}

// spared notes a copy that is not needed: the peer has had the slot stored.
func (o *outbox) spared(p *peer, s dueSlot) {
	o.p.stats.stoodBy.Add(1)
	o.p.cfg.Handed(s.def.queue, s.message(p.name))
}

// sift asks of each copy of a batch what is to become of it: to be held, to be
// published by us, or, when it did what was to be done itself, nothing.
func (o *outbox) sift(p *peer, b *batch, fate func(*spare) fate) {
	var ours []spare
	n := 0
	for i := range b.copies {
		switch fate(&b.copies[i]) {
		case stays:
			b.copies[n] = b.copies[i]
			n++
		case ourDuty:
			ours = append(ours, b.copies[i])
		}
	}
	o.standing -= len(b.copies) - n
	b.copies = slices.Delete(b.copies, n, len(b.copies))
	o.takeOver(p, b, ours)
}

// fate is what becomes of a copy.
type fate int

const (
	stays fate = iota
	ends
	ourDuty
)

// believe drops the copies that are held for the peer and that its last
// announcement says are stored. It must hold for the same shares as ours, and for
// the definition that the copy was computed from: then the slot was handed out by
// the peer, as its own, and acknowledged (see the package comment).
func (o *outbox) believe(p *peer, b *board) {
	if !o.fleet.agrees(p) {
		return
	}
	p.standing = slices.DeleteFunc(p.standing, func(held *batch) bool {
		if held.due.After(p.last.Time) {
			return false // in a burst there are many words before the one that speaks of it
		}
		current := held.registry == b.digest
		o.sift(p, held, func(c *spare) fate {
			s := c.slot()
			switch t := b.tasks; {
			case s.Due.After(p.last.Time) || !current && (t[s.def.name] == nil || t[s.def.name].def != s.def):
				return stays
			case slices.Contains(p.last.Except, s.def.name):
				return ourDuty // the peer has tried
			}
			if o.isAudit(p, s) {
				c.audit = true
				return ourDuty
			}
			o.spared(p, s)
			if s.isLate() {
				o.uncount(s.line.task)
			}
			return ends
		})
		return held.isEmpty()
	})
}

// overdue publishes the copies that were held for long enough, and returns when
// to look again; zero: not before something else happens. Peers that did not
// show life meanwhile, or did nothing else, do not count any more.
func (o *outbox) overdue(now time.Time) (next time.Time) {
	delay := o.p.cfg.StandbyDelay + o.lag(now)
	for _, p := range o.fleet.active {
		if len(p.standing) == 0 {
			continue
		}
		since := p.standing[0].since
		at := later(since, p.heard).Add(delay)
		agrees := o.fleet.agrees(p)
		switch {
		case !now.Before(at):
			p.silent = true
			o.release(p, now)
			continue
		case !agrees && !now.Before(since.Add(delay)):
			o.release(p, now.Add(-delay))
		case agrees && !now.Before(since.Add(patience)):
			p.distrusted = now.Add(distrust)
			o.release(p, now)
			continue
		case !agrees:
			at = since.Add(delay)
		default:
			at = earlier(at, since.Add(patience))
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// lag is how long the broker takes to answer us now: what others say takes as long
// to come.
func (o *outbox) lag(now time.Time) time.Duration {
	lag := o.took
	if o.flying > 0 {
		lag = max(lag, now.Sub(o.oldest))
	}
	return min(lag, patience)
}

// release makes the copies that were handed out by then, and are held for the
// peer, a duty of ours.
func (o *outbox) release(p *peer, until time.Time) {
	n := 0
	for n < len(p.standing) && !p.standing[n].since.After(until) {
		o.sift(p, p.standing[n], func(*spare) fate { return ourDuty })
		n++
	}
	p.standing = slices.Delete(p.standing, 0, n)
}

// takeOver makes copies of a batch duties of ours. They are items at the batch's
// place, so that each mark that had to wait for it has to wait for them.
func (o *outbox) takeOver(p *peer, b *batch, copies []spare) {
	if len(copies) == 0 {
		return
	}
	items := make([]*item, len(copies))
	for i := range copies {
		items[i] = &item{dueSlot: copies[i].slot(), judged: b.judged}
		if copies[i].audit {
			items[i].audited = []*peer{p}
		}
	}
	at := slices.IndexFunc(o.items, func(it *item) bool { return it.batch == b }) + 1
	o.items = slices.Insert(o.items, at, items...)
	for i := range o.marks {
		if o.marks[i].number >= o.first+uint64(at) {
			o.marks[i].number += uint64(len(items))
		}
	}
	for _, it := range items {
		u := o.tasks[it.line.task]
		if !it.isLate() {
			u = o.count(it.line.task)
		}
		o.begin(it, u)
	}
}

// dismiss gives the copies of a batch back to the board, of one job or of all (nil).
func (o *outbox) dismiss(held *batch, b *board, t *task) {
	o.sift(nil, held, func(c *spare) fate {
		if t != nil && c.line.task != t {
			return stays
		}
		b.back(c.slot())
		return ends
	})
}

func (b *batch) isEmpty() bool { return len(b.copies) == 0 }

// reshare is for when the members have changed: a copy stays with its peer only if
// the slot is of that one's share still. The others are our duty, since they may be
// of our own share now.
func (o *outbox) reshare() {
	for _, p := range o.fleet.peers {
		p.standing = slices.DeleteFunc(p.standing, func(held *batch) bool {
			o.sift(p, held, func(c *spare) fate {
				if o.fleet.first(c.def.name) == p {
					return stays
				}
				return ourDuty
			})
			return held.isEmpty()
		})
	}
}

// own is how many slots of our share are not acknowledged.
func (o *outbox) own() int { return o.open }

// share returns up to when our share is acknowledged, of the shares as they are
// now, and the jobs for which that does not hold. It is false when nothing can be
// said yet.
func (o *outbox) share() (until time.Time, except []string, ok bool) {
	if len(o.board.held) > maxExcept {
		return time.Time{}, nil, false
	}
	for t := range o.board.held {
		except = append(except, t.def.name)
	}
	slices.Sort(except)
	number := o.first
	for _, it := range o.items {
		if (it.state == held || it.state == inFlight || it.state == waiting) && !it.line.task.held {
			break
		}
		number++
	}
	for _, m := range slices.Backward(append([]mark{o.passed}, o.marks...)) {
		if m.number <= number && m.epoch == o.fleet.epoch {
			return m.time, except, true
		}
	}
	return time.Time{}, nil, false
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
