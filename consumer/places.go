package consumer

import (
	"sync"
	"time"
)

// places counts the handlers that may still be started, and from that how many
// slots may be asked for and claimed. A place is taken between the won claim and
// the handler's start, and is free again when the handler has returned.
//
// Invariants:
//   - At most size places are taken at a time.
//   - What has been asked for, has come, or is claimed and waits for its place is
//     no more than there are free places, and those that will be free by then
//     (ahead). Only a source that has nothing asked for may always ask for one
//     when a place is free; what then comes beyond the others is not claimed.
//
// It is safe for concurrent use.
type places struct {
	free chan struct{}
	size int

	// notes bounds how many slots without a place may wait for their outcomes to
	// be recorded.
	notes chan struct{}

	mu       sync.Mutex
	asked    int             // messages, by all sources
	waiting  []chan struct{} // messages that have come, and may not be claimed yet
	admitted int             // slots that may be claimed, and have no place yet
	claim    time.Duration   // moving averages: of what a claim takes,
	run      time.Duration   // and of how long a handler does
	changed  []func()        // who wants to know that there may be more to ask for
}

const (
	// lookahead bounds how many slots are asked for and claimed ahead, per place.
	lookahead = 64

	// patience is how long a slot waits for a place: until the handlers that were
	// expected to return have, or have not.
	patience = 250 * time.Millisecond
)

func newPlaces(n int) *places {
	p := &places{free: make(chan struct{}, n), size: n, notes: make(chan struct{}, lookahead*n)}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

// onChange has changed called whenever more may be asked for. It must not block.
func (p *places) onChange(changed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, changed)
}

// ahead is for how many slots no place is free but will be when they are claimed:
// as many as handlers return while one is asked for and claimed, which takes
// about two of what a claim takes. With handlers that outlast a round trip to the
// broker by far there are none, so that no slot waits here while another worker has
// a place for it. p.mu is held.
func (p *places) ahead() int {
	if p.claim <= 0 {
		return 0
	}
	return int(float64(p.size) * min(lookahead, 2*float64(p.claim)/float64(max(p.run, 1))))
}

// reserve allots up to most messages to a source that has asked for own already,
// and enters them as asked for. It gives nothing until half of the window is
// unused, so that a steady trickle of slots costs a request for several of them.
func (p *places) reserve(own, most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	window := len(p.free) + p.ahead() - p.admitted - len(p.waiting)
	n := min(window-p.asked, most)
	switch {
	case own == 0 && n <= 0 && len(p.free) > p.admitted+len(p.waiting):
		n = 1 // the others must not keep it from hearing of anything
	case n <= 0 || own > 0 && n < window/2:
		return 0
	}
	p.asked += n
	return n
}

// forget takes back n messages that were asked for and will not come.
func (p *places) forget(n int) {
	p.mu.Lock()
	p.asked -= n
	p.mu.Unlock()
}

// arrived enters a message that has come, asked for or late. It may be claimed at
// once when turn is nil, else when turn is closed: see wait.
func (p *places) arrived(asked bool) (turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked {
		p.asked--
	}
	if len(p.waiting) == 0 && p.room() {
		p.admitted++
		return nil
	}
	turn = make(chan struct{})
	p.waiting = append(p.waiting, turn)
	return turn
}

// wait waits for a message's turn, until stop is closed at the longest. It is false
// when there will be no place for it.
func (p *places) wait(turn chan struct{}, stop <-chan struct{}) bool {
	if turn == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
		return true
	case <-stop:
	case <-timer.C:
	}
	return p.giveUp(turn)
}

// room reports whether one more may be claimed. p.mu is held.
func (p *places) room() bool { return p.admitted < len(p.free)+p.ahead() }

// giveUp ends the wait of a message; it is true when its turn came just now.
func (p *places) giveUp(turn chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.waiting {
		if t == turn {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return false
		}
	}
	return true
}

// next admits who waits, as far as there is room, and tells the sources.
func (p *places) next() {
	p.mu.Lock()
	for len(p.waiting) > 0 && p.room() {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
		p.admitted++
	}
	changed := p.changed
	p.mu.Unlock()
	for _, f := range changed {
		f()
	}
}

// place is the way of one admitted slot to its place and off it. Its methods are
// called in order, by whoever serves the slot.
type place struct {
	p        *places
	admitted time.Time
	started  time.Time // when the handler began, zero if none did
	noted    bool      // takes up one of p.notes
	over     bool      // neither admitted nor in a place any more
}

func newPlace(p *places) place { return place{p: p, admitted: time.Now()} }

// take waits for a place, with the claim won, until stop is closed at the longest.
// It is false when there is none: handlers have become slow, and nothing is claimed
// ahead until some have returned.
func (pl *place) take(stop <-chan struct{}) bool {
	p, won := pl.p, time.Now()
	if pl.over { // it has stepped aside
		p.mu.Lock()
		p.admitted++
		p.mu.Unlock()
		pl.over, pl.admitted = false, won
	}
	select {
	case <-p.free:
	default:
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-p.free:
		case <-stop:
			return false
		case <-timer.C:
			p.mu.Lock()
			p.claim, p.run = 0, 0
			p.mu.Unlock()
			return false
		}
	}
	pl.started = time.Now()
	p.mu.Lock()
	p.admitted--
	average(&p.claim, won.Sub(pl.admitted))
	p.mu.Unlock()
	return true
}

// returned gives the place back when the handler has returned: the next slot need
// not wait until this one's outcome is on the broker's disk. It waits only when
// very many outcomes do.
func (pl *place) returned() {
	pl.p.mu.Lock()
	average(&pl.p.run, time.Since(pl.started))
	pl.p.mu.Unlock()
	pl.p.notes <- struct{}{}
	pl.noted = true
	if !pl.over {
		pl.leave()
	}
}

// stepAside lets others pass while the slot waits for something else than a place.
// When that has come it takes one, without being admitted first.
func (pl *place) stepAside() {
	if !pl.over {
		pl.leave()
		pl.started = time.Time{}
	}
}

// end gives back what was not given back yet.
func (pl *place) end() {
	if pl.noted {
		<-pl.p.notes
	}
	if !pl.over {
		pl.leave()
	}
}

func (pl *place) leave() {
	pl.over = true
	if pl.started.IsZero() {
		pl.p.mu.Lock()
		pl.p.admitted--
		pl.p.mu.Unlock()
	} else {
		pl.p.free <- struct{}{}
	}
	pl.p.next()
}

// average moves an average towards one more value.
func average(of *time.Duration, value time.Duration) {
	const weight = 16 // of what was known, against one more
	*of += (value - *of) / weight
}
