package producer

import (
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
)

const (
	// standbyLimit is how long a copy is kept for an owner that is alive and agrees on the shares.
	// Such an owner publishes as fast as the broker accepts slots, so copies would only add load.
	standbyLimit = 2 * time.Second

	// maxStandby bounds the copies. Beyond it, this producer publishes slots of other shares
	// itself.
	maxStandby = 1 << 18

	// maxExcept bounds the jobs in Announcement.Except, to which the announced time does not
	// apply.
	maxExcept = 100
)

// batch is the copies of a peer's slots that were taken off the agenda at one time. One
// item in the outbox represents them.
type batch struct {
	copies []standbyCopy

	// returnedAt is when the agenda returned the copies, by the broker's clock. since is when
	// the standby delay began, by this machine's clock; zero while the batch may grow.
	returnedAt, since time.Time

	// due is when the first slot of the batch fell due. registry is the digest of the
	// definitions from which the slots were computed.
	due      time.Time
	registry uint64
}

// standbyCopy is a copy of a slot. It is small: with five producers, four in five slots that
// each of them computes are copies, and nearly all of these are dropped.
type standbyCopy struct {
	line          *line
	def           *definition
	at            int64          // in seconds since 1970
	missed        *plans.DueSlot // the range, if it is one
	shard, shards uint16
	caughtUp      bool
	audit         bool // publish it although the peer has announced the slot
}

func newStandbyCopy(s dueSlot) standbyCopy {
	c := standbyCopy{line: s.line, def: s.def, at: s.At.Unix(), shard: uint16(s.shard), shards: uint16(s.shards), caughtUp: s.CaughtUp}
	if s.isRange() {
		span := s.DueSlot
		c.missed = &span
	}
	return c
}

// slot returns the slot of the copy.
func (c *standbyCopy) slot() dueSlot {
	s := dueSlot{line: c.line, def: c.def, shard: int(c.shard), shards: int(c.shards)}
	if c.missed != nil {
		s.DueSlot = *c.missed
		return s
	}
	s.At = time.Unix(c.at, 0).UTC()
	s.Due, s.CaughtUp = s.At.Add(c.line.schedule.Delay()), c.caughtUp
	return s
}

// owner returns the producer that is to publish the slot.
func (o *outbox) owner(s dueSlot) *peer {
	if o.standby >= maxStandby {
		return o.fleet.self
	}
	return o.fleet.owner(s.def.name)
}

// keepCopy keeps a copy for the slot's owner. If the owner has already announced the slot,
// the copy is dropped, or published as an audit.
func (o *outbox) keepCopy(p *peer, s dueSlot, now time.Time) {
	if o.fleet.agrees(p) && !s.Due.After(p.last.Time) && !slices.Contains(p.last.Except, s.def.name) {
		if !o.startsAudit(p, s) {
			o.dropCopy(p, s)
			return
		}
		o.addItem(&item{dueSlot: s, returnedAt: now, audited: []*peer{p}})
		return
	}
	n := len(p.standby)
	if n == 0 || !p.standby[n-1].since.IsZero() {
		b := &batch{returnedAt: now, due: s.Due, registry: o.fleet.registry}
		p.standby = append(p.standby, b)
		o.items = append(o.items, &item{state: onStandby, batch: b})
		n++
	}
	b := p.standby[n-1]
	b.due = plans.Earlier(b.due, s.Due)
	b.copies = append(b.copies, newStandbyCopy(s))
	o.standby++
	if s.isLate() {
		o.increment(s.line.job)
	}
}

// sealBatches ends the batches of one call of add.
func (o *outbox) sealBatches(since time.Time) {
	for _, p := range o.fleet.active {
		if n := len(p.standby); n > 0 && p.standby[n-1].since.IsZero() {
			p.standby[n-1].since = since
		}
	}
}

// dropCopy counts a dropped copy, and reports the slot to Stored as published by the peer.
func (o *outbox) dropCopy(p *peer, s dueSlot) {
	o.p.stats.stoodBy.Add(1)
	o.p.cfg.Stored(s.def.queue, s.message(p.name))
}

// filterBatch calls decide for each copy of a batch, and keeps, drops or publishes the copy
// accordingly.
func (o *outbox) filterBatch(p *peer, b *batch, decide func(*standbyCopy) copyAction) {
	var ours []standbyCopy
	n := 0
	for i := range b.copies {
		switch decide(&b.copies[i]) {
		case keep:
			b.copies[n] = b.copies[i]
			n++
		case publishCopy:
			ours = append(ours, b.copies[i])
		}
	}
	o.standby -= len(b.copies) - n
	b.copies = slices.Delete(b.copies, n, len(b.copies))
	o.takeOver(p, b, ours)
}

// copyAction is what to do with a copy.
type copyAction int

const (
	keep copyAction = iota
	drop
	publishCopy
)

// dropAnnounced drops the copies that the peer's last announcement covers. The announcement
// counts only if the peer agrees on the shares, and if the definition from which a copy was
// computed is still the current one. Then the peer had the slot on its agenda, as its own, and
// the stream has acknowledged it.
func (o *outbox) dropAnnounced(p *peer) {
	if !o.fleet.agrees(p) {
		return
	}
	jobs := o.agenda.jobs
	p.standby = slices.DeleteFunc(p.standby, func(b *batch) bool {
		if b.due.After(p.last.Time) {
			return false // a burst causes many announcements before the one that covers it
		}
		current := b.registry == o.agenda.digest
		o.filterBatch(p, b, func(c *standbyCopy) copyAction {
			s := c.slot()
			switch j := jobs[s.def.name]; {
			case s.Due.After(p.last.Time) || !current && (j == nil || j.def != s.def):
				return keep
			case slices.Contains(p.last.Except, s.def.name):
				return publishCopy // the peer cannot publish slots of this job
			}
			if o.startsAudit(p, s) {
				c.audit = true
				return publishCopy
			}
			o.dropCopy(p, s)
			if s.isLate() {
				o.decrement(s.line.job)
			}
			return drop
		})
		return b.isEmpty()
	})
}

// takeOverdue publishes copies that their owners have not announced in time. If a peer was
// silent for the standby delay, or agrees on the shares and has not announced a copy within
// standbyLimit, takeOverdue publishes all its copies, and the peer does not count for a while (see
// peer). If a peer does not agree, takeOverdue publishes the copies that are older than the standby
// delay. It returns when to call it again; zero: not before something else happens.
func (o *outbox) takeOverdue(now time.Time) (next time.Time) {
	delay := o.p.cfg.StandbyDelay + o.lag(now)
	for _, p := range o.fleet.active {
		if len(p.standby) == 0 {
			continue
		}
		since := p.standby[0].since
		limit := since.Add(standbyLimit)
		at := plans.Later(since, p.lastHeard).Add(delay) // then the peer counts as silent
		switch agrees := o.fleet.agrees(p); {
		case !now.Before(at):
			p.silent = true
			o.takeOverUntil(p, now)
			continue
		case agrees && !now.Before(limit):
			p.distrust(distrustFor)
			o.takeOverUntil(p, now)
			continue
		case agrees:
			at = plans.Earlier(at, limit)
		case now.Before(since.Add(delay)):
			at = since.Add(delay)
		default:
			o.takeOverUntil(p, now.Add(-delay))
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// lag is how long the broker now takes to answer. Announcements take as long to arrive.
func (o *outbox) lag(now time.Time) time.Duration {
	lag := o.took
	if o.inFlight > 0 {
		lag = max(lag, now.Sub(o.oldest))
	}
	return min(lag, standbyLimit)
}

// takeOverUntil publishes those copies of the peer's slots whose standby delay began by the
// given time.
func (o *outbox) takeOverUntil(p *peer, until time.Time) {
	n := 0
	for n < len(p.standby) && !p.standby[n].since.After(until) {
		o.filterBatch(p, p.standby[n], func(*standbyCopy) copyAction { return publishCopy })
		n++
	}
	p.standby = slices.Delete(p.standby, 0, n)
}

// takeOver turns copies of a batch into items of this producer. They take the batch's
// place, so that each mark that waited for the batch waits for them.
func (o *outbox) takeOver(p *peer, b *batch, copies []standbyCopy) {
	if len(copies) == 0 {
		return
	}
	items := make([]*item, len(copies))
	for i := range copies {
		items[i] = &item{dueSlot: copies[i].slot(), returnedAt: b.returnedAt}
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
		backlog := o.backlogs[it.line.job]
		if !it.isLate() {
			backlog = o.increment(it.line.job)
		}
		o.publishOrQueue(it, backlog)
	}
}

// returnBatch returns copies of a batch to the agenda: those of job j, or all if j is nil.
func (o *outbox) returnBatch(b *batch, j *plannedJob) {
	o.filterBatch(nil, b, func(c *standbyCopy) copyAction {
		if j != nil && c.line.job != j {
			return keep
		}
		o.agenda.takeBack(c.slot())
		return drop
	})
}

func (b *batch) isEmpty() bool { return len(b.copies) == 0 }

// reshare applies a change of the members: a copy is kept only if its peer still owns the
// job. The others are published, since this producer may own them now.
func (o *outbox) reshare() {
	for _, p := range o.fleet.peers {
		p.standby = slices.DeleteFunc(p.standby, func(b *batch) bool {
			o.filterBatch(p, b, func(c *standbyCopy) copyAction {
				if o.fleet.owner(c.def.name) == p {
					return keep
				}
				return publishCopy
			})
			return b.isEmpty()
		})
	}
}

// announceable returns the time up to which all slots of this producer's present share are
// acknowledged, except those of the named jobs. ok is false if nothing can be announced yet.
func (o *outbox) announceable() (until time.Time, except []string, ok bool) {
	if len(o.agenda.suspended) > maxExcept {
		return time.Time{}, nil, false
	}
	for j := range o.agenda.suspended {
		except = append(except, j.def.name)
	}
	slices.Sort(except)
	number := o.first
	for _, it := range o.items {
		if (it.state == deferred || it.state == inFlight || it.state == waiting) && !it.line.job.suspended {
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
