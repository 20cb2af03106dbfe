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
	// attemptTimeout is the least time after which an unanswered question is sent again. If
	// a request was lost with a leader, the next leader then gets it soon.
	attemptTimeout = time.Second

	// patrolEvery is the precision with which questions end. All questions share one timer,
	// which costs nothing. A timer for each took a tenth of the time of a short slot.
	patrolEvery = 50 * time.Millisecond

	// mostGap bounds the time between two copies of a question.
	mostGap = 30 * time.Second

	// mostSlow bounds the remembered time of slow answers.
	mostSlow = 15 * time.Second
)

// transport sends everything that this package sends outside the JetStream client:
// questions, which stay open until they are answered, and messages that need no answer.
//
// Invariants:
//   - Each question has one reply subject, which all its copies use. It stays open until it
//     is settled or its context ends. So an answer counts however late it arrives.
//   - Only the writer, one goroutine, uses the connection. nats.go holds its lock while it
//     writes to the socket, up to a minute if the peer does not read. Neither the askers nor
//     the timer that ends questions wait for that lock.
//   - The writer checks each question after it has waited for the lock. If the question has
//     ended by then, the writer does not send it.
//   - Further copies are sent after the gap, twice the gap, and so on. The gap is a second,
//     or twice the time of recent answers if that is longer. So the transport does not add
//     load to a broker that is slow because it is overloaded.
//
// The writer ends when there is nothing to send. The first question creates the
// subscription of the inbox, which ends with the connection. A transport is safe for
// concurrent use.
type transport struct {
	conn  port
	link  *link
	inbox string // including the last dot
	began time.Time

	writings, publications sync.Pool // settled ones, for reuse
	idle                   patience  // limit of a pause within a batch

	mu   sync.Mutex
	last uint64 // id of the newest question

	// open holds the unanswered questions by id. The goroutine that removes a question ends it.
	open map[uint64]*question

	queue, spare []outgoing // messages to send; an empty slice for reuse
	writing      bool       // whether the writer runs

	// timer calls patrol; on reports whether it is set.
	timer *time.Timer
	on    bool

	slow   time.Duration // time of recent answers
	losses uint64        // how often the connection was lost, when patrol last ran

	subscribed bool     // only the writer uses these two
	msg        nats.Msg // reused for each copy
}

// port is the part of a connection that a transport uses. Each method may wait for the
// lock of nats.Conn.
type port interface {
	IsConnected() bool
	IsClosed() bool
	PublishMsg(*nats.Msg) error
	Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error)
}

// asker is the request that a question carries.
type asker interface {
	// subject is the question's subject; compose fills in m for one copy. The writer does
	// not keep m, and only the writer calls compose.
	subject() string
	compose(m *nats.Msg)

	// answer receives an answer, or a nil m and the reason why there will be none. Unless
	// the question has many answers, it has left the open ones by then. answer must not
	// block, because the answers to all other questions wait for it.
	answer(m *nats.Msg, err error)
}

// question is one write, publication or read in flight. Its asker may set the fields of
// the first group. The rest belongs to the transport and is guarded by its lock.
type question struct {
	asker
	ctx context.Context //nolint:containedctx // it is looked at until the question ends; nil: nothing ends it

	once       bool          // it is sent once, and ends if its connection is lost
	many       bool          // it has many answers, and is sent once
	limit      time.Duration // it times out this long after it was asked, or after its last answer; 0: never
	endsDenied bool          // it ends if the server does not permit it

	// before sends the messages that the server must receive before the question. It may
	// be nil. Only the writer calls it.
	before func(send func(*nats.Msg) error) error

	id          uint64
	asked       time.Duration // time since the transport began
	wall        int64         // the same time in Unix nanoseconds, whose clock counts suspend
	first, sent time.Duration // times of the first copy on this connection, and of the last copy
	next        time.Duration // when the next copy is due
	soon        bool          // next holds however slow answers are
	gap         time.Duration
	copies      int  // number of copies sent
	queued      bool // a copy is in the writer's queue
	held        bool // send no copy now

	// written counts the copies that the writer has finished with.
	written atomic.Int32
}

// free reports whether the writer no longer uses a question that was taken, so that it can
// be reused. The answer to its only copy implies that too, but gives no happens-before in
// the memory model.
func (q *question) free() bool { return q.copies == 1 && q.written.Load() == 1 }

// outgoing is a copy of a question, which is sent if the question is still open under this
// id, or a message that needs no answer.
type outgoing struct {
	q  *question
	id uint64

	subject, reply string
	data           []byte
	until          time.Time  // drop it after this time; zero: never
	do             func(port) // if set, nothing is sent: do is called when everything before it was sent
}

func newTransport(conn port, l *link, inbox string) *transport {
	t := &transport{conn: conn, link: l, inbox: inbox + ".", began: time.Now(), open: map[uint64]*question{}}
	t.timer = time.AfterFunc(time.Hour, t.patrol)
	t.timer.Stop()
	l.complained = t.complain
	return t
}

func (t *transport) now() time.Duration { return time.Since(t.began) }

// ask opens a question and sends it. The asker's answer method is called once (more often
// if the question has many answers), on any goroutine, possibly this one.
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

// say sends a message that needs no answer. If the message could not be sent before until,
// it is dropped; zero means that it is kept.
func (t *transport) say(subject, reply string, data []byte, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send(outgoing{subject: subject, reply: reply, data: data, until: until})
}

// flush waits until the connection has everything that was sent before.
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

// do makes the writer call f, which may use the connection.
func (t *transport) do(f func(port)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send(outgoing{do: f})
}

// take ends a question. It returns false if the question has ended already.
func (t *transport) take(q *question) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[q.id] != q {
		return false
	}
	delete(t.open, q.id)
	return true
}

// again reopens a question after an answer to it, and sends another copy after the pause.
func (t *transport) again(q *question, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.held, q.next, q.soon = false, t.now()+pause, true
	t.enter(q)
}

// hold reopens a question and sends no further copy. An answer to an earlier copy ends it,
// or take does.
func (t *transport) hold(q *question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.held = true
	t.enter(q)
}

// enter opens q. The caller of enter, copyOf, send and pace holds the lock.
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

// pace returns how long an answer may take before another copy is sent.
func (t *transport) pace() time.Duration { return max(attemptTimeout, 2*t.slow) }

// write sends what is queued, until the queue is empty.
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
		// The client would buffer the message, or send it after its deadline.
	default:
		t.msg = nats.Msg{Subject: o.subject, Reply: o.reply, Data: o.data}
		_ = t.conn.PublishMsg(&t.msg)
	}
}

// handCopy sends a copy of a question if the question is still open.
func (t *transport) handCopy(q *question, id uint64) {
	// Both calls may wait for the connection's lock, so they precede the check in begin.
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

// handPart sends a message that must precede the question, if the question is still open.
func (t *transport) handPart(q *question, id uint64, m *nats.Msg) error {
	t.mu.Lock()
	open := t.open[id] == q
	t.mu.Unlock()
	if !open {
		return context.Canceled
	}
	return t.conn.PublishMsg(m)
}

// begin counts a copy that is about to be sent, if the question is still open and wanted. If
// the question ends instead, lost is the reason.
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
		// A client that buffers would send it later.
		lost = nats.ErrDisconnected
	case q.once && time.Duration(now.UnixNano()-q.wall) > t.patience():
		lost = nats.ErrTimeout // this process, or its machine, was suspended
	case !connected:
		q.next, q.soon = now.Sub(t.began), true // send it as soon as there is a connection
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
		_ = sub.SetPendingLimits(-1, -1) // a dropped answer is requested again
	}
	t.subscribed = true
	return nil
}

// received passes an answer to its question.
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

// measure records how long an answer took. The caller holds the lock.
func (t *transport) measure(took time.Duration) {
	if took >= t.slow {
		t.slow = min(took, mostSlow)
		return
	}
	t.slow -= (t.slow - took) / 8
}

// patience returns how long a publication may stay open. The caller holds the lock.
func (t *transport) patience() time.Duration {
	return min(max(publishTimeout, 3*t.pace()), 2*mostSlow)
}

// patrol ends the questions that have timed out or whose context has ended, and sends
// another copy of those that are due. If the connection was lost, all are due at once,
// because their answers are lost too.
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

// due reports whether another copy of the question is due. It uses the current pace, not
// the pace when the last copy was sent. So while the answers to a burst arrive, each later
// than the one before, the rest of the burst only waits.
func (t *transport) due(q *question, now time.Duration) bool {
	return now >= q.next && (q.soon || now-q.sent >= t.pace()) && !q.queued && !q.held && !q.once && !q.many
}

// over returns why a question ends without an answer, or nil.
func (t *transport) over(q *question, now time.Duration, lost bool) error {
	switch {
	case q.ctx != nil && q.ctx.Err() != nil:
		return q.ctx.Err()
	case lost && (q.once || q.many):
		return nats.ErrDisconnected
	case t.link.isClosed():
		return nats.ErrConnectionClosed
	case q.once && now-q.asked >= t.patience():
		t.measure(now - q.asked) // else no answer would ever be given more time
		return nats.ErrTimeout
	case q.limit != 0 && now-q.asked >= q.limit:
		return nats.ErrTimeout
	}
	return nil
}

// complain ends the questions that the server does not permit, if they have endsDenied.
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
