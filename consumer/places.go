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
//   - At most size places are taken at a time, and nobody is in line while one is free.
//   - What has been asked for, has come, or is claimed and waits for its place is
//     no more than there are free places, and those that will be free by then
//     (ahead). Only a source that has nothing asked for may always ask for one
//     when a place is free; what then comes beyond the others is not claimed.
//
// Who wants a place that is taken stands in line, and has the next one that is given
// back. A slot that has won its claim has no goroutine meanwhile: it is started by
// whoever gave the place back.
//
// It is safe for concurrent use.
type places struct {
	size int
	run  func(*task) // starts the handler of one who got its place, or is refused it; does not block

	// notes bounds how many slots without a place may wait for their outcomes to
	// be recorded.
	notes chan struct{}

	mu       sync.Mutex
	free     int
	line     []waiter
	enough   *time.Timer     // for the first in line to have waited
	closed   bool            // nobody gets a place any more
	asked    int             // messages, by all sources
	waiting  []chan struct{} // messages that have come, and may not be claimed yet
	admitted int             // slots that may be claimed, and have no place yet
	claim    time.Duration   // moving averages: of what a claim takes,
	handling time.Duration   // and of how long a handler does
	changed  []func()        // who wants to know that there may be more to ask for
}

const (
	// lookahead bounds how many slots are asked for and claimed ahead, per place.
	lookahead = 64

	// patience is how long a slot waits for a place: until the handlers that were
	// expected to return have, or have not.
	patience = 250 * time.Millisecond
)

// waiter is one in line: a slot whose claim is won, or who is told.
type waiter struct {
	*place
	since time.Time
	t     *task
	told  chan bool // whether it got a place
}

func newPlaces(n int, run func(*task)) *places {
	p := &places{free: n, size: n, run: run, notes: make(chan struct{}, lookahead*n)}
	p.enough = time.AfterFunc(time.Hour, p.impatient)
	p.enough.Stop()
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
	return int(float64(p.size) * min(lookahead, 2*float64(p.claim)/float64(max(p.handling, 1))))
}

// reserve allots up to most messages to a source that has asked for own already,
// and enters them as asked for. It gives nothing until half of the window is
// unused, so that a steady trickle of slots costs a request for several of them.
func (p *places) reserve(own, most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	window := p.free + p.ahead() - p.admitted - len(p.waiting)
	n := min(window-p.asked, most)
	switch {
	case own == 0 && n <= 0 && p.free > p.admitted+len(p.waiting):
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
func (p *places) room() bool { return p.admitted < p.free+p.ahead() }

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

// take waits for a place, until the places are closed at the longest. It is false when
// there is none: handlers have become slow, and nothing is claimed ahead until some have
// returned.
func (pl *place) take() bool {
	told := make(chan bool, 1)
	if placed, waits := pl.enter(waiter{pl, time.Now(), nil, told}); !waits {
		return placed
	}
	return <-told
}

// takeFor is take for a slot that has won its claim. If it has to wait, it is given
// away: it is run later, with its place or without.
func (pl *place) takeFor(t *task) (waits bool) {
	placed, waits := pl.enter(waiter{pl, time.Now(), t, nil})
	if !waits {
		t.placed = placed // else somebody may be at it already
	}
	return waits
}

// enter takes a place if one is free, and stands in line for one if not.
func (pl *place) enter(w waiter) (placed, waits bool) {
	p := pl.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl.over { // it has stepped aside
		p.admitted++
		pl.over, pl.admitted = false, w.since
	}
	switch {
	case p.closed:
		return false, false
	case p.free > 0:
		p.free--
		w.placed()
		return true, false
	}
	if p.line = append(p.line, w); len(p.line) == 1 {
		p.enough.Reset(patience)
	}
	return false, true
}

// placed notes that it has its place. p.mu is held.
func (w waiter) placed() {
	w.started = time.Now()
	w.p.admitted--
	average(&w.p.claim, w.since.Sub(w.admitted))
}

// give gives one place to the first in line. It returns the slot that is to be run with
// it, if it is one. p.mu is held.
func (p *places) give() *task {
	if len(p.line) == 0 {
		p.free++
		return nil
	}
	w := p.line[0]
	if p.line = p.line[1:]; len(p.line) > 0 {
		p.enough.Reset(max(time.Until(p.line[0].since.Add(patience)), 0))
	} else {
		p.enough.Stop()
		p.line = nil
	}
	w.placed()
	return w.tell(true)
}

// tell tells who waits. It returns the slot, which is to be run.
func (w waiter) tell(placed bool) *task {
	if w.t == nil {
		w.told <- placed // it has room for it
		return nil
	}
	w.t.placed = placed
	return w.t
}

// impatient refuses a place to who has waited for too long.
func (p *places) impatient() {
	now := time.Now()
	p.mu.Lock()
	n := 0
	for n < len(p.line) && now.Sub(p.line[n].since) >= patience {
		n++
	}
	if n > 0 {
		p.claim, p.handling = 0, 0
	}
	if n < len(p.line) {
		p.enough.Reset(patience - now.Sub(p.line[n].since))
	}
	refused := p.line[:n:n]
	p.line = p.line[n:]
	p.mu.Unlock()
	p.refuse(refused)
}

// close refuses a place to everybody from now on.
func (p *places) close() {
	p.mu.Lock()
	refused := p.line
	p.line, p.closed = nil, true
	p.enough.Stop()
	p.mu.Unlock()
	p.refuse(refused)
}

func (p *places) refuse(waiters []waiter) {
	for _, w := range waiters {
		if t := w.tell(false); t != nil {
			p.run(t)
		}
	}
}

// returned gives the place back when the handler has returned: the next slot need
// not wait until this one's outcome is on the broker's disk. It waits only when
// very many outcomes do. The next slot is the caller's to run.
func (pl *place) returned() (next *task) {
	took := time.Since(pl.started)
	pl.p.notes <- struct{}{}
	pl.noted = true
	pl.p.mu.Lock()
	average(&pl.p.handling, took)
	pl.p.mu.Unlock()
	if pl.over {
		return nil
	}
	return pl.giveBack()
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
	if next := pl.giveBack(); next != nil {
		pl.p.run(next)
	}
}

// giveBack gives back what it has. It returns the slot that is to be run with that.
func (pl *place) giveBack() (next *task) {
	pl.over = true
	pl.p.mu.Lock()
	if pl.started.IsZero() {
		pl.p.admitted--
	} else {
		next = pl.p.give()
	}
	pl.p.mu.Unlock()
	pl.p.next()
	return next
}

// average moves an average towards one more value.
func average(of *time.Duration, value time.Duration) {
	const weight = 16 // of what was known, against one more
	*of += (value - *of) / weight
}
