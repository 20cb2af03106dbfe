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

// mayStand reports whether a copy of the slot is to be held for another producer,
// whose share it is. Not of ranges, which stand for other slots than those of
// whoever publishes a range of the same name.
func (o *outbox) mayStand(it *item) bool {
	return !it.Range && o.standing < maxStanding && o.fleet.first(it.def.name) != o.fleet.self
}

// stand holds copies for the producers whose share they are.
func (o *outbox) stand(copies []*item, since time.Time) {
	for _, it := range copies {
		p := o.fleet.first(it.def.name)
		n := len(p.standing)
		if n == 0 || !p.standing[n-1].since.Equal(since) {
			p.standing = append(p.standing, batch{since: since, due: it.Due})
			n++
		}
		b := &p.standing[n-1]
		b.due = earlier(b.due, it.Due)
		b.items = append(b.items, it)
	}
}

// believe drops the copies that are held for the peer and that its last
// announcement says are stored. It must hold for the same shares as ours, and for
// the definition that the copy was computed from: then the slot was handed out by
// the peer, as its own, and acknowledged (see the package comment).
func (o *outbox) believe(p *peer, b *board) {
	if !o.fleet.agrees(p) {
		return
	}
	kept := p.standing[:0]
	for _, batch := range p.standing {
		if batch.due.After(p.last.Time) {
			// In a burst there are many words before the one that speaks of it.
			kept = append(kept, batch)
			continue
		}
		batch.items = slices.DeleteFunc(batch.items, func(it *item) bool {
			if it.state != standing {
				return true // it went back to the board
			}
			t := b.tasks[it.def.name]
			switch {
			case it.Due.After(p.last.Time) || t == nil || t.def != it.def:
				return false
			case slices.Contains(p.last.Except, it.def.name):
				o.takeOver(it) // the peer has tried
			default:
				o.standing--
				o.p.stats.stoodBy.Add(1)
				o.p.cfg.Handed(it.def.queue, it.message(p.name))
				o.settle(it)
			}
			return true
		})
		if len(batch.items) > 0 {
			kept = append(kept, batch)
		}
	}
	clear(p.standing[len(kept):])
	p.standing = kept
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
		for _, it := range p.standing[n].items {
			if it.state == standing {
				o.takeOver(it)
			}
		}
		n++
	}
	p.standing = slices.Delete(p.standing, 0, n)
}

// takeOver makes a copy that was held a duty of ours.
func (o *outbox) takeOver(it *item) {
	o.standing--
	o.owes = true
	if o.tasks[it.line.task].retry != nil {
		o.wait(it) // behind those that fail
		return
	}
	o.publish(it)
}

// reshare is for when the members have changed: a copy stays with its peer only if
// the slot is of that one's share still. The others are our duty, since they may be
// of our own share now.
func (o *outbox) reshare() {
	for _, p := range o.fleet.peers {
		kept := p.standing[:0]
		for _, batch := range p.standing {
			batch.items = slices.DeleteFunc(batch.items, func(it *item) bool {
				if it.state == standing && o.fleet.first(it.def.name) != p {
					o.takeOver(it)
				}
				return it.state != standing
			})
			if len(batch.items) > 0 {
				kept = append(kept, batch)
			}
		}
		clear(p.standing[len(kept):])
		p.standing = kept
	}
}

// own is how many slots of our share are not acknowledged.
func (o *outbox) own() int { return o.open - o.standing }

// share returns up to when our share is acknowledged, of the shares as they are
// now, and the jobs for which that does not hold. It is false when nothing can be
// said yet.
func (o *outbox) share() (until time.Time, except []string, ok bool) {
	number := o.first
	for _, it := range o.items {
		if it.state == held || it.state == inFlight || it.state == waiting {
			if u := o.tasks[it.line.task]; u.retry == nil {
				break
			}
			if !slices.Contains(except, it.def.name) {
				if len(except) == maxExcept {
					break
				}
				except = append(except, it.def.name)
			}
		}
		number++
	}
	for _, m := range slices.Backward(append([]mark{o.claimed}, o.marks...)) {
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
