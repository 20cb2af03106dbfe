package wire

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// Storage counts as slow if one more message takes this long or longer. Storage that syncs
	// each message needs 150 µs or more. Other storage needs 20 to 100 µs, and so does a
	// cluster, which syncs its log for many messages at once. On storage that is not slow,
	// batches make no difference to publications, but halve the rate of the writes that slots
	// wait for.
	SlowWrite       = 200 * time.Microsecond
	SlowPublication = 100 * time.Microsecond

	// window is how many single messages may be open at once before the storage has been
	// measured. They cost slow storage about as much as one batch.
	window = minBatch

	// slowWindow is how many messages are sent at once, without waiting, on slow storage. It
	// stores one after another. If more were sent at once, they would not be stored any sooner,
	// and could not go in a batch.
	slowWindow = 4

	// maxBatches is how many batches of maxBatch messages a round may have open at once. The server
	// accepts 50 open batches of a stream, from all processes.
	maxBatches = 4

	// On slow storage, a group probes after probeEvery: it sends the messages of one round singly,
	// to measure the storage again. If the storage is still slow, the time until the next probe
	// doubles, up to maxProbe.
	probeEvery = time.Second
	maxProbe   = time.Minute

	// maxRound is how long messages wait for the end of a round that gets no answer.
	maxRound = time.Second

	// batchPause is how long a group sends no batch after the server did not store one, unless
	// the reason was a conflict, a known message ID or a lost connection. For example, the
	// server has too many open batches, or this login may not write one of the subjects.
	batchPause = 10 * time.Second
)

// Group sends the messages to one stream. If the storage is slow, the messages that arrive while
// others are open wait, and go together in an atomic batch, which the server syncs once.
// This is the group commit of databases.
//
// A group sends messages in rounds. A message that arrives while a round is open joins it if the
// round has room. Otherwise the message waits until the round ends. A round consists of single
// messages and batches. All messages of a batch have the same context. If a whole batch waits and
// fewer than maxBatches are open, it joins the round, so that the storage has work all the time.
//
// Nothing is configured. A group measures how long one more message takes. It measures only rounds
// of minBatch messages or more in which the storage had work all the time: their messages were sent
// singly, and either all at once, or other messages waited when the round ended. The distance to
// the broker does not count.
//
// Invariants:
//   - A message waits only while a round is open, so a lone message never waits. If the context of
//     a waiting message ends, the message ends.
//   - A round that gets no answer delays the waiting messages by maxRound at most. The round's
//     own messages stay open after that, as they would without a group.
//   - Each write names its revision, and each publication its message ID, in a batch and singly.
//     A group changes when a message is sent and with which others, never what settles it; see
//     batch.
//   - A publication that waits in a group while this process is suspended is not sent.
type Group struct {
	Wire
	least time.Duration // the storage counts as slow if one more message takes this long or longer

	mu      sync.Mutex
	round   *round                          // the newest; nil: none is open
	waiting []Member                        // in the order of their arrival
	watched map[context.Context]func() bool // contexts of the waiting messages; each function stops watching one
	timer   *time.Timer                     // ends the round after maxRound, so that the waiting messages are sent
	spare   *round                          // for reuse

	times    [3]time.Duration // time of one more message in the last measured rounds
	measured int              // number of measured rounds
	probed   time.Time        // when the last measured round ended, or the last probe began
	distant  bool             // in the last measured round, only the distance to the broker took long
	interval time.Duration    // between two probes, while the storage is slow or the broker distant
	strain   time.Duration    // running average of the time of one more message, while the storage counts as fast
	paused   time.Time        // no batch before this time
}

// NewGroup returns a group for the messages to one stream. Its storage counts as slow if one more
// message takes the time slow or longer.
func NewGroup(w Wire, slow time.Duration) *Group { return &Group{Wire: w, least: slow} }

// round is a set of messages that were sent together.
type round struct {
	group      *Group
	began      time.Time
	sent       int  // number of messages
	unanswered int  // number of messages without an answer
	together   bool // some of them went as a batch
	atOnce     int  // number of messages sent at its beginning
}

// Send sends a message, now or with those that wait.
func (g *Group) Send(m Member) {
	q := m.question()
	g.mu.Lock()
	if g.round != nil && (len(g.waiting) > 0 || g.round.unanswered >= g.window()) {
		g.wait(m)
		var more []*batch
		if len(g.waiting)%minBatch == 0 { // rarely, since it may look at all that wait
			more = g.more()
		}
		g.mu.Unlock()
		g.ask(more)
		return
	}
	if g.round == nil {
		if g.distant && time.Since(g.probed) >= g.interval {
			g.measured = 0 // on a busy machine, the broker may have seemed more distant than it is
		}
		g.begin()
	}
	g.round.add(q)
	g.mu.Unlock()
	g.Transport.Ask(q)
}

// wait queues a message until the round ends. The caller of wait, and of each method between it and
// Leave, holds the group's lock.
func (g *Group) wait(m Member) {
	if len(g.waiting) == 0 {
		g.await(g.round)
	}
	q := m.question()
	q.waited, q.wall = true, time.Now().UnixNano()
	if ctx := q.ctx; ctx != nil && ctx.Done() != nil && g.watched[ctx] == nil {
		if g.watched == nil {
			g.watched = map[context.Context]func() bool{}
		}
		g.watched[ctx] = context.AfterFunc(ctx, func() { g.endWaiting(ctx) })
	}
	g.waiting = append(g.waiting, m)
}

// add counts a message of the round.
func (r *round) add(q *Question) {
	q.round, q.openBefore = r, r.unanswered
	r.unanswered++
	r.sent++
}

// begin begins a round.
func (g *Group) begin() *round {
	g.round, g.spare = g.spare, nil
	if g.round == nil {
		g.round = &round{}
	}
	*g.round = round{group: g, began: time.Now()}
	return g.round
}

// await ends the round after maxRound, so that messages do not wait longer for it.
func (g *Group) await(r *round) {
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timer = time.AfterFunc(maxRound, func() { g.endRound(r) })
}

// pace returns the time of one more message on this storage, or 0 if it is not known. It is the
// shortest of the last rounds, because a busy machine only makes a round longer. One round is
// enough if the storage was fast, or took at least twice the time that counts as slow.
// In between, the round may have been long by accident, and then the group would send batches to
// fast storage until the next probe.
func (g *Group) pace() time.Duration {
	rounds := min(g.measured, len(g.times))
	if rounds == 0 {
		return 0
	}
	pace := slices.Min(g.times[:rounds])
	if rounds < len(g.times) && g.least <= pace && pace < 2*g.least {
		return 0
	}
	return pace
}

func (g *Group) slow() bool { return g.pace() >= g.least }

// window returns how many messages may be open before further ones wait.
func (g *Group) window() int {
	switch pace := g.pace(); {
	case pace == 0:
		return window
	case pace < g.least:
		return 1 << 20
	case time.Now().Before(g.paused):
		return window
	}
	return slowWindow
}

// measure records the time of one more message, if the answered round qualifies; see Group.
func (g *Group) measure(r *round) {
	if r.together || r.sent < minBatch || len(g.waiting) == 0 && r.atOnce < r.sent {
		return
	}
	g.probed = time.Now()
	took := g.probed.Sub(r.began)
	pace := (took - g.Transport.distance.least()) / time.Duration(r.sent-1)
	g.times[g.measured%len(g.times)] = max(pace, 1)
	g.measured++
	g.distant = pace < g.least && g.least <= took/time.Duration(r.sent)
	if g.interval = min(2*g.interval, maxProbe); g.interval == 0 || !g.slow() && !g.distant {
		g.interval = probeEvery
	}
}

// next ends the round. If messages wait, it begins a new round with them. It returns the messages
// to send singly, and the batches to send.
func (g *Group) next() (single []Member, batches []*batch) {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if ended := g.round; ended.unanswered == 0 {
		g.spare = ended // nothing refers to it any more
	}
	g.round = nil
	if len(g.waiting) == 0 {
		for _, stop := range g.watched {
			stop()
		}
		clear(g.watched)
		return nil, nil
	}
	r := g.begin()
	batches = g.batches(r)
	// Fast storage takes all that waited while it was measured, at once.
	if n := min(len(g.waiting), max(g.window(), window)); len(batches) == 0 || n < minBatch {
		single = slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
	}
	for _, m := range single {
		r.add(m.question())
	}
	r.atOnce = len(single)
	if len(g.waiting) > 0 {
		g.await(r)
	}
	return single, batches
}

// batches removes the messages that a new round sends in batches from the waiting ones, and returns
// their batches.
func (g *Group) batches(r *round) []*batch {
	switch {
	case !g.slow(), len(g.waiting) < minBatch, r.began.Before(g.paused):
		return nil
	case r.began.Sub(g.probed) >= g.interval:
		g.probed = r.began // probe: send this round singly
		return nil
	}
	all := g.take(r, minBatch, maxBatches)
	r.together = len(all) > 0
	return all
}

// take removes up to most batches from the waiting messages, and adds them to the round. It makes
// batches of messages with one context, while no fewer than least of them are left. It looks at no
// more messages than it needs, since many may wait.
func (g *Group) take(r *round, least, most int) (all []*batch) {
	of := map[context.Context][]Member{}
	looked := 0
	for _, m := range g.waiting {
		if len(all) == most {
			break
		}
		looked++
		ctx := m.question().ctx
		of[ctx] = append(of[ctx], m)
		if members := of[ctx]; len(members) == maxBatch {
			n := batchable(members)
			all = append(all, g.batch(r, members[:n:n]))
			of[ctx] = slices.Clone(members[n:])
		}
	}
	for _, members := range of {
		for len(members) >= least && len(all) < most {
			n := batchable(members)
			all = append(all, g.batch(r, members[:n:n]))
			members = members[n:]
		}
	}
	left := slices.DeleteFunc(g.waiting[:looked:looked], func(m Member) bool { return m.question().round == r })
	g.waiting = slices.Delete(g.waiting, len(left), looked)
	return all
}

// more removes a whole batch from the waiting messages if the round consists of batches and has room
// for another, and returns it.
func (g *Group) more() []*batch {
	r := g.round
	if !r.together || len(g.waiting) < maxBatch || r.unanswered > (maxBatches-1)*maxBatch || time.Now().Before(g.paused) {
		return nil
	}
	return g.take(r, maxBatch, 1)
}

// batch returns a batch of the round.
func (g *Group) batch(r *round, members []Member) *batch {
	b := newBatch(g.Wire, members)
	b.waited, b.wall = true, members[0].question().wall
	for _, m := range members {
		r.add(m.question())
	}
	return b
}

// Leave removes the question from the unanswered ones of its round.
func (q *Question) Leave() {
	if r := q.round; r != nil {
		q.round = nil
		r.countAnswers(1)
	}
}

// countAnswers removes n messages from the unanswered ones of the round. If none is left, it sends
// those that wait. Otherwise it sends the next whole batch if there is room for it.
func (r *round) countAnswers(n int) {
	g := r.group
	g.mu.Lock()
	r.unanswered -= n
	ended := g.round == r && r.unanswered == 0
	var more []*batch
	switch {
	case ended:
		g.measure(r)
	case g.round == r:
		more = g.more()
	}
	g.mu.Unlock()
	if ended {
		g.endRound(r)
	}
	g.ask(more)
}

// ask sends batches. The caller does not hold the group's lock.
func (g *Group) ask(batches []*batch) {
	for _, b := range batches {
		g.Transport.Ask(&b.Question)
	}
}

// endRound ends a round, answered or not, and sends the waiting messages. It does nothing if
// another round has begun.
func (g *Group) endRound(r *round) {
	g.mu.Lock()
	if g.round != r {
		g.mu.Unlock()
		return
	}
	single, batches := g.next()
	g.mu.Unlock()
	g.ask(batches)
	for _, m := range single {
		g.Transport.Ask(m.question())
	}
}

// endWaiting ends the waiting messages with this context, which has ended.
func (g *Group) endWaiting(ctx context.Context) {
	g.mu.Lock()
	var ended []*Question
	g.waiting = slices.DeleteFunc(g.waiting, func(m Member) bool {
		q := m.question()
		if q.ctx == ctx {
			ended = append(ended, q)
		}
		return q.ctx == ctx
	})
	delete(g.watched, ctx)
	g.mu.Unlock()
	for _, q := range ended {
		g.Transport.Ask(q) // answers with the error of the context
	}
}

// strained records the time that a message took. ahead is the number of messages of its round that
// were open when it was sent. If storage that was fast has become slow, strained discards the
// measurements, so that the group measures again.
func (g *Group) strained(ahead int, took time.Duration) {
	if ahead < window {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	took = max(took-g.Transport.distance.least(), 0)
	g.strain += (took/time.Duration(ahead+1) - g.strain) / 32
	if g.strain >= 2*g.least && !g.slow() {
		g.measured, g.strain = 0, 0
	}
}

// failed stops batches for a while; see batchPause.
func (g *Group) failed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = time.Now().Add(batchPause)
}
