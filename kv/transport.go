package kv

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/job"
)

const (
	// attemptTimeout is the least time after which an unanswered question is sent again:
	// a request that was lost with a leader reaches the next leader soon.
	attemptTimeout = time.Second

	// patrolEvery is how exactly the end of a question is kept. One timer for all
	// questions costs nothing; one for each was a tenth of a short slot.
	patrolEvery = 50 * time.Millisecond

	// mostGap bounds the time between two copies.
	mostGap = 30 * time.Second

	// mostSlow bounds what is remembered of slow answers.
	mostSlow = 15 * time.Second
)

// transport carries everything that this package sends outside the JetStream client:
// questions, which are open until they are answered, and messages that need no answer.
//
// Invariants:
//   - One question has one reply subject. All its copies go there, and it is open until
//     it is settled or its context ends. So an answer counts however late it comes.
//   - Only the writer, one goroutine, touches the connection. nats.go holds its lock
//     while it writes to the socket, up to a minute if the peer does not read: whoever
//     asks never waits for that, and the timer that ends questions does not either.
//   - The writer looks at a question after it has waited for the lock. What is no longer
//     wanted by then is not sent.
//   - Further copies go out after the gap, twice the gap, and so on. The gap is a second,
//     or twice the time that answers lately took: a broker that is slow because it has
//     much to do is not given more to do for it.
//
// The goroutine that writes ends when there is nothing to write. The subscription of the
// inbox is made with the first question and ends with the connection. A transport is safe
// for concurrent use.
type transport struct {
	conn  port
	link  *link
	inbox string // with the last dot
	began time.Time

	writings, publications sync.Pool // that are settled, to be used again
	idle                   patience  // with batches

	mu   sync.Mutex
	last uint64 // id

	// open are the questions without an answer. Who takes one out ends it.
	open map[uint64]*question

	queue, spare []outgoing // to be sent; an empty one, to be used again
	writing      bool       // the writer runs

	// timer looks at what is open; on: it will.
	timer *time.Timer
	on    bool

	slow   time.Duration // how long answers lately took
	losses uint64        // of the connection, at the last look

	subscribed bool     // only the writer uses these two
	msg        nats.Msg // made anew for each copy
}

// port is what a transport needs of a connection. Any of it may wait for the lock of
// nats.Conn.
type port interface {
	IsConnected() bool
	IsClosed() bool
	PublishMsg(*nats.Msg) error
	Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error)
}

// asker is what a question is about.
type asker interface {
	// subject is where the question goes; compose makes a copy of it, which is not
	// kept. Only the writer composes.
	subject() string
	compose(m *nats.Msg)

	// answer takes an answer, or (m is nil) why there will be none. The question is not
	// open any more then, unless it has many answers. It must not block: the answers to
	// all other questions wait for it.
	answer(m *nats.Msg, err error)
}

// question is one write, publication or read under way. Its asker may set the first
// group; the rest is the transport's, which guards it by its lock.
type question struct {
	asker
	ctx context.Context //nolint:containedctx // it is looked at until the question ends; nil: nothing ends it

	once       bool          // it is sent once, and ends with its connection
	many       bool          // it has many answers, and is sent once
	limit      time.Duration // it is given up so long after it was asked, or its last answer came; 0: never
	endsDenied bool          // it ends when the server does not permit it

	// before sends the messages that the server must have before the question, if it
	// has any. Only the writer calls it.
	before func(send func(*nats.Msg) error) error

	id          uint64
	asked       time.Duration // since the transport began
	wall        int64         // when that was, in nanoseconds of a clock that counts suspend
	first, sent time.Duration // when the first copy was sent on this connection, and the last one
	next        time.Duration // when the next one is due
	soon        bool          // that holds however long answers take
	gap         time.Duration
	copies      int  // that were sent
	queued      bool // a copy is about to be
	held        bool // no copy is wanted now

	// written counts the copies that the writer has let go of.
	written atomic.Int32
}

// free reports, of a question that was taken out, whether the writer looks at it no more:
// then it can be used again. That the one copy was answered says so too, but not to the
// memory model.
func (q *question) free() bool { return q.copies == 1 && q.written.Load() == 1 }

// outgoing is a copy of a question, if it is still open under this id, or a message that
// needs no answer.
type outgoing struct {
	q  *question
	id uint64

	subject, reply string
	data           []byte
	until          time.Time  // it is of no use later; zero: always
	do             func(port) // nothing to be sent: it is called when all before it was
}

func newTransport(conn port, l *link, inbox string) *transport {
	t := &transport{conn: conn, link: l, inbox: inbox + ".", began: time.Now(), open: map[uint64]*question{}}
	t.timer = time.AfterFunc(time.Hour, t.patrol)
	t.timer.Stop()
	l.complained = t.complain
	return t
}

func (t *transport) now() time.Duration { return time.Since(t.began) }

// ask opens a question and sends it. Its asker is given the answer, or an error, once
// (unless it has many), by any goroutine, this one included.
func (t *transport) ask(q *question) {
	if q.ctx != nil && q.ctx.Err() != nil {
		q.answer(nil, q.ctx.Err())
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	q.id, q.asked, q.wall = t.last, now.Sub(t.began), now.UnixNano()
	q.first, q.sent, q.next, q.soon, q.gap, q.copies, q.held = 0, 0, 0, false, 0, 0, false
	q.written.Store(0)
	t.enter(q)
	t.copyOf(q)
}

// say sends a message that needs no answer, or drops it if that was not possible before
// until (zero: always wait).
func (t *transport) say(subject, reply string, data []byte, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send(outgoing{subject: subject, reply: reply, data: data, until: until})
}

// flush waits until everything that was sent before has been handed to the connection.
func (t *transport) flush(ctx context.Context) error {
	written := make(chan struct{})
	t.do(func(port) { close(written) })
	select {
	case <-written:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// do has the writer call f, which may use the connection.
func (t *transport) do(f func(port)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send(outgoing{do: f})
}

// take ends a question. It is false if the question has ended already.
func (t *transport) take(q *question) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[q.id] != q {
		return false
	}
	delete(t.open, q.id)
	return true
}

// again reopens a question that its asker was given an answer to, and sends a further
// copy after the pause.
func (t *transport) again(q *question, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.held, q.next, q.soon = false, t.now()+pause, true
	t.enter(q)
}

// hold reopens a question without sending a further copy: an answer to an earlier one
// ends it, or take.
func (t *transport) hold(q *question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.held = true
	t.enter(q)
}

// enter is called with the lock held, as are copyOf, send and pace.
func (t *transport) enter(q *question) {
	t.open[q.id] = q
	if !t.on {
		t.on, t.losses = true, t.link.losses.Load()
		t.timer.Reset(patrolEvery)
	}
}

func (t *transport) copyOf(q *question) {
	q.queued = true
	t.send(outgoing{q: q, id: q.id})
}

func (t *transport) send(o outgoing) {
	t.queue = append(t.queue, o)
	if !t.writing {
		t.writing = true
		go t.write()
	}
}

// pace is how long an answer may take before a further copy is sent.
func (t *transport) pace() time.Duration { return max(attemptTimeout, 2*t.slow) }

// write hands to the connection what there is to send.
func (t *transport) write() {
	for {
		t.mu.Lock()
		all := t.queue
		t.queue, t.spare = t.spare, nil
		t.writing = len(all) > 0
		t.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for i := range all {
			t.hand(&all[i])
		}
		clear(all)
		t.mu.Lock()
		t.spare = all[:0]
		t.mu.Unlock()
	}
}

func (t *transport) hand(o *outgoing) {
	switch {
	case o.do != nil:
		o.do(t.conn)
	case o.q != nil:
		t.handCopy(o.q, o.id)
	case !o.until.IsZero() && (!t.conn.IsConnected() || time.Now().Round(0).After(o.until)):
		// It would be sent when nobody wants it any more.
	default:
		t.msg = nats.Msg{Subject: o.subject, Reply: o.reply, Data: o.data}
		_ = t.conn.PublishMsg(&t.msg)
	}
}

// handCopy sends a copy of a question that is still open.
func (t *transport) handCopy(q *question, id uint64) {
	// Both wait for the connection's lock, while no copy is in hand.
	connected := t.conn.IsConnected()
	closed := !connected && t.conn.IsClosed()
	open, lost := t.begin(q, id, connected, closed)
	if lost != nil {
		q.answer(nil, lost)
	}
	if !open {
		return
	}
	err := t.subscribe()
	if err == nil && q.before != nil {
		err = q.before(func(m *nats.Msg) error { return t.handPart(q, id, m) })
	}
	if err == nil {
		var reply [64]byte
		t.msg = nats.Msg{Reply: string(strconv.AppendUint(append(reply[:0], t.inbox...), id, 36))}
		q.compose(&t.msg)
		err = t.conn.PublishMsg(&t.msg)
	}
	if err == nil {
		q.written.Add(1)
		return
	}
	if classify(err) != refused && !q.once {
		return
	}
	t.mu.Lock()
	if open = t.open[id] == q; open {
		delete(t.open, id)
		q.copies--
	}
	t.mu.Unlock()
	if open {
		q.answer(nil, err)
	}
}

// handPart sends a message that the question needs before it, if the question is still
// open.
func (t *transport) handPart(q *question, id uint64, m *nats.Msg) error {
	t.mu.Lock()
	open := t.open[id] == q
	t.mu.Unlock()
	if !open {
		return context.Canceled
	}
	return t.conn.PublishMsg(m)
}

// begin counts a copy that is about to be sent, if the question is still open and wanted.
// lost is why the question ends instead.
func (t *transport) begin(q *question, id uint64, connected, closed bool) (open bool, lost error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[id] != q {
		return false, nil
	}
	q.queued = false
	switch {
	case q.ctx != nil && q.ctx.Err() != nil:
		lost = q.ctx.Err()
	case closed:
		lost = nats.ErrConnectionClosed
	case !connected && (q.once || q.many):
		// A client that buffers would send it at some later time.
		lost = nats.ErrDisconnected
	case q.once && time.Duration(now.UnixNano()-q.wall) > t.patience():
		lost = nats.ErrTimeout // this process, or its machine, has slept
	case !connected:
		q.next, q.soon = now.Sub(t.began), true // as soon as there is a connection
		return false, nil
	}
	if lost != nil {
		delete(t.open, id)
		return false, lost
	}
	q.copies++
	if q.copies == 1 {
		q.first = now.Sub(t.began)
	}
	q.gap = min(max(2*q.gap, t.pace()), mostGap)
	q.sent, q.soon = now.Sub(t.began), false
	q.next = q.sent + q.gap
	return true, nil
}

func (t *transport) subscribe() error {
	if t.subscribed {
		return nil
	}
	sub, err := t.conn.Subscribe(t.inbox+"*", t.received)
	if err != nil {
		return err
	}
	if sub != nil {
		_ = sub.SetPendingLimits(-1, -1) // an answer that is dropped is asked for again
	}
	t.subscribed = true
	return nil
}

// received passes an answer on.
func (t *transport) received(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[min(len(t.inbox), len(m.Subject)):], 36, 64)
	if err != nil {
		return
	}
	t.mu.Lock()
	q, open := t.open[id]
	switch now := t.now(); {
	case !open:
	case q.many:
		q.asked = now
	default:
		delete(t.open, id)
		t.measure(now - q.first)
	}
	t.mu.Unlock()
	if open {
		q.answer(m, nil)
	}
}

// measure takes in how long an answer took. The lock is held.
func (t *transport) measure(took time.Duration) {
	if took >= t.slow {
		t.slow = min(took, mostSlow)
		return
	}
	t.slow -= (t.slow - took) / 8
}

// patience is how long a question of a publication may be open. The lock is held.
func (t *transport) patience() time.Duration {
	return min(max(publishTimeout, 3*t.pace()), 2*mostSlow)
}

// patrol ends the questions that nobody waits for any more, and sends further copies of
// the others that are due. After the connection was lost all are due at once: their
// answers are lost with it.
func (t *transport) patrol() {
	connected, losses := t.link.connected.Load(), t.link.losses.Load()
	type unanswered struct {
		*question
		why error
	}
	var given []unanswered
	t.mu.Lock()
	now, lost := t.now(), losses != t.losses
	t.losses = losses
	for id, q := range t.open {
		if why := t.over(q, now, lost); why != nil {
			delete(t.open, id)
			given = append(given, unanswered{q, why})
			continue
		}
		if lost {
			q.first, q.next, q.soon, q.gap = now, now, true, 0
		}
		if connected && t.due(q, now) {
			t.copyOf(q)
		}
	}
	if t.on = len(t.open) > 0; t.on {
		t.timer.Reset(patrolEvery)
	}
	t.mu.Unlock()
	for _, q := range given {
		q.answer(nil, q.why)
	}
}

// due reports whether a further copy of the question is. What was learnt since the last
// one counts: while the answers to a burst come, each later than the one before, the rest
// of it is only waited for.
func (t *transport) due(q *question, now time.Duration) bool {
	return now >= q.next && (q.soon || now-q.sent >= t.pace()) && !q.queued && !q.held && !q.once && !q.many
}

// over is why a question ends without an answer, if it does.
func (t *transport) over(q *question, now time.Duration, lost bool) error {
	switch {
	case q.ctx != nil && q.ctx.Err() != nil:
		return q.ctx.Err()
	case lost && (q.once || q.many):
		return nats.ErrDisconnected
	case t.link.isClosed():
		return nats.ErrConnectionClosed
	case q.once && now-q.asked >= t.patience():
		t.measure(now - q.asked) // or no answer would ever be waited for longer
		return nats.ErrTimeout
	case q.limit != 0 && now-q.asked >= q.limit:
		return nats.ErrTimeout
	}
	return nil
}

// complain ends the questions that the server does not permit, and that are to end then.
func (t *transport) complain(complaint error) {
	var given []*question
	t.mu.Lock()
	for id, q := range t.open {
		if q.endsDenied && names(complaint, q.subject()) {
			delete(t.open, id)
			given = append(given, q)
		}
	}
	t.mu.Unlock()
	for _, q := range given {
		q.answer(nil, &deniedError{complaint, job.ErrUnknown})
	}
}
