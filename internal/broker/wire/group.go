package wire

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatches is how many batches of maxBatch messages a round may have open at once. The server
	// accepts 50 open batches of a stream, from all processes.
	maxBatches = 4

	// maxRoundBytes bounds the bodies of a round's messages, but not of a single message. Other messages, such
	// as heartbeats, wait behind those of a round on a slow link.
	maxRoundBytes = 4 << 20

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
// Nothing is configured: rounds measure the storage; see storage. Only a round of minBatch messages or
// more counts, if all of them were sent singly and the storage had work all the time: either all were
// sent at once, or other messages waited when the round ended.
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

	mu      sync.Mutex
	round   *round                          // the newest; nil: none is open
	waiting []Member                        // in the order of their arrival
	watched map[context.Context]func() bool // contexts of the waiting messages; each function stops watching one
	timer   *time.Timer                     // ends the round after maxRound, so that the waiting messages are sent
	spare   *round                          // for reuse
	paused  time.Time                       // no batch before this time
}

// NewGroup returns a group for the messages to one stream.
func NewGroup(w Wire) *Group { return &Group{Wire: w} }

// round is a set of messages that were sent together.
type round struct {
	group      *Group
	began      time.Time
	sent       int  // number of messages
	bytes      int  // of the bodies of all messages
	unanswered int  // number of messages without an answer
	together   bool // some of them went as a batch
	atOnce     int  // number of messages sent at its beginning
}

// Send sends a message, now or with those that wait.
func (g *Group) Send(m Member) {
	q := m.question()
	g.mu.Lock()
	if g.round != nil && (len(g.waiting) > 0 || g.round.unanswered >= g.window() || g.round.bytes+m.Size() > maxRoundBytes) {
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
		g.Transport.storage.doubtDistance()
		g.begin()
	}
	g.round.add(m)
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

func (r *round) add(m Member) {
	q := m.question()
	q.round, q.openBefore = r, r.unanswered
	r.unanswered++
	r.sent++
	r.bytes += m.Size()
}

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

// window returns how many messages may be open before further ones wait.
func (g *Group) window() int {
	w := g.Transport.storage.window()
	if w == slowWindow && time.Now().Before(g.paused) {
		return window
	}
	return w
}

// measure measures the storage by the answered round, if that qualifies; see Group.
func (g *Group) measure(r *round) {
	if r.together || r.sent < minBatch || len(g.waiting) == 0 && r.atOnce < r.sent {
		return
	}
	g.Transport.storage.measure(time.Since(r.began), r.sent)
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
		n = fitting(g.waiting[:n], maxRoundBytes)
		single = slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
	}
	for _, m := range single {
		r.add(m)
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
	storage := &g.Transport.storage
	if !storage.slow() || len(g.waiting) < minBatch || r.began.Before(g.paused) || storage.probe(r.began) {
		return nil
	}
	all := g.take(r, minBatch, maxBatches)
	r.together = len(all) > 0
	return all
}

// take removes up to most batches from the waiting messages, and adds them to the round. Each batch
// has messages with the same context, and takes them only if at least least of them wait. take looks
// at no more messages than it needs, since many may wait.
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

func (g *Group) batch(r *round, members []Member) *batch {
	b := newBatch(g.Wire, members)
	b.waited, b.wall = true, members[0].question().wall
	for _, m := range members {
		r.add(m)
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

// failed stops batches for a while; see batchPause.
func (g *Group) failed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = time.Now().Add(batchPause)
}
