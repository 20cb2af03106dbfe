package wire

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/broker/link"
	"github.com/cronce-io/cronce/job"
)

const (
	// AttemptTimeout is the least time after which an unanswered question is sent again. It is
	// short: if a leader is lost with a question, the next leader soon gets a copy.
	AttemptTimeout = time.Second

	// patrolEvery is the interval of patrol, and so the precision with which questions end. All
	// questions share one timer, at no measurable cost. A timer for each question took a tenth
	// of the time of a short slot.
	patrolEvery = 50 * time.Millisecond

	// mostGap bounds the time between two copies of a question.
	mostGap = 30 * time.Second

	// mostSlow bounds transport.slow.
	mostSlow = 15 * time.Second
)

// transport sends everything that this package sends on a connection outside the JetStream client:
// questions, which stay open until they are answered, and messages that need no answer.
//
// Invariants:
//   - Each question has one reply subject, which all its copies use. A question that is
//     repeated stays open until it is settled or its context ends. So any answer to it counts,
//     however late it arrives.
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
	conn  Port
	link  *link.Link
	inbox string // including the last dot
	began time.Time

	writings, Publications sync.Pool // settled ones, for reuse
	idle                   idleLimit // limit of a pause between the answers to a Get

	directOnly sync.Map // streams, after the prefix of their API, that this login may read only with direct gets
	answered   sync.Map // prefixes of JetStream APIs that have answered Ask

	mu   sync.Mutex
	last uint64 // id of the newest question

	// unanswered holds the unanswered questions by id. The goroutine that removes a question ends it.
	unanswered map[uint64]*Question

	queue, spare []outgoing // messages to send; an empty slice for reuse
	writing      bool       // whether the writer runs

	// timer calls patrol; on reports whether it is set.
	timer *time.Timer
	on    bool

	slow     time.Duration // time of recent answers; see measure
	distance distance
	storage  storage
	losses   uint64 // link.Losses when patrol last ran

	subscribed bool     // only the writer uses these two
	msg        nats.Msg // reused for each copy
}

// Port is the part of a connection that a transport uses. Each method may wait for the
// lock of nats.Conn.
type Port interface {
	IsConnected() bool
	IsClosed() bool
	PublishMsg(*nats.Msg) error
	Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error)
}

// Asker is the request of a question: it composes the copies, and receives the answers.
type Asker interface {
	// Subject returns the question's subject. Compose fills in m for one copy. The writer does
	// not keep m, and only the writer calls Compose.
	Subject() string
	Compose(m *nats.Msg)

	// Answer receives an answer, or a nil m and the reason why there will be none. Unless the
	// question has many answers, the transport has closed it by then. Answer must not block,
	// because the answers to all other questions wait for it.
	Answer(m *nats.Msg, err error)
}

// Question is one write, publication, read or other request in flight.
type Question struct {
	// The asker sets these fields before it asks.
	Asker
	ctx context.Context //nolint:containedctx // patrol checks it until the question ends; nil: no context ends it

	Once       bool          // it is sent once, and ends if its connection is lost
	many       bool          // it has many answers, and is sent once
	limit      time.Duration // it times out this long after it was asked, or after its last answer; 0: never
	FailDenied bool          // it ends if the server does not permit it

	// before sends the messages that the server must receive before the question. It may
	// be nil. Only the writer calls it.
	before func(send func(*nats.Msg) error) error

	// The transport sets these fields, and guards them with its lock.
	id          uint64
	asked       time.Duration // when it was asked or, if it has many answers, last answered; counted from the beginning of the transport
	wall        int64         // when it was asked, or began to wait in a group, in Unix nanoseconds; this clock also runs while the machine is suspended
	first, sent time.Duration // times of the first copy on this connection, and of the last copy
	next        time.Duration // when the next copy is due
	soon        bool          // send the next copy at next, even if answers are slow
	gap         time.Duration
	copies      int  // number of copies sent
	queued      bool // a copy is in the writer's queue
	paused      bool // send no copy now

	// The group that sends the question sets these fields.
	round      *round // the round of a group that counts it as unanswered; nil: none
	openBefore int    // how many questions of the round were open before it
	waited     bool   // it has waited in a group since wall

	// written counts the copies that the writer has finished with.
	written atomic.Int32
}

// Free reports whether the writer no longer uses a question that has ended, so that it can be
// reused. An answer to the only copy also proves that, but Go's memory model does not order the
// writer's accesses before the answer. The atomic counter written does.
func (q *Question) Free() bool { return q.copies == 1 && q.written.Load() == 1 }

// outgoing is a copy of a question, which is sent if the question is still open under this
// id, or a message that needs no answer.
type outgoing struct {
	q  *Question
	id uint64

	subject, reply string
	data           []byte
	until          time.Time  // drop it after this time; zero: never
	do             func(Port) // if set, nothing is sent: do is called when everything before it was sent
}

func newTransport(conn Port, l *link.Link, inbox string) *transport {
	t := &transport{conn: conn, link: l, inbox: inbox + ".", began: time.Now(), unanswered: map[uint64]*Question{}}
	t.storage.distance = &t.distance
	t.timer = time.AfterFunc(time.Hour, t.patrol)
	t.timer.Stop()
	l.Complained = t.complain
	return t
}

func (t *transport) now() time.Duration { return time.Since(t.began) }

// Ask opens a question and sends it. The transport calls the asker's Answer once (more often if
// the question has many answers, or is reopened), on any goroutine, possibly this one.
func (t *transport) Ask(q *Question) {
	if q.ctx != nil && q.ctx.Err() != nil {
		q.Answer(nil, q.ctx.Err())
		return
	}
	now := time.Now()
	if !q.waited {
		q.wall = now.UnixNano()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	q.id, q.asked, q.waited = t.last, now.Sub(t.began), false
	q.first, q.sent, q.next, q.soon, q.gap, q.copies, q.paused = 0, 0, 0, false, 0, 0, false
	q.written.Store(0)
	t.open(q)
	t.queueCopy(q)
}

// Publish sends a message that needs no answer. If the message cannot be sent before until, it is
// dropped. A zero until keeps it.
func (t *transport) Publish(subject, reply string, data []byte, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send(outgoing{subject: subject, reply: reply, data: data, until: until})
}

// Flush waits until everything that was sent before has been written to the connection, or until
// ctx ends.
func (t *transport) Flush(ctx context.Context) error {
	written := make(chan struct{})
	t.Do(func(Port) { close(written) })
	select {
	case <-written:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Do makes the writer call f, which may use the connection.
func (t *transport) Do(f func(Port)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.send(outgoing{do: f})
}

// end ends a question. It returns false if the question has ended already.
func (t *transport) end(q *Question) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unanswered[q.id] != q {
		return false
	}
	delete(t.unanswered, q.id)
	return true
}

// reopen reopens a question after an answer to it, and sends another copy after the pause.
func (t *transport) reopen(q *Question, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.paused, q.next, q.soon = false, t.now()+pause, true
	t.open(q)
}

// hold reopens a question and sends no further copy. The question ends with an answer to an earlier
// copy, or with a call of end.
func (t *transport) hold(q *Question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.paused = true
	t.open(q)
}

// open opens q. The caller of open, queueCopy, send and pace holds the lock.
func (t *transport) open(q *Question) {
	t.unanswered[q.id] = q
	if !t.on {
		t.on, t.losses = true, t.link.Losses.Load()
		t.timer.Reset(patrolEvery)
	}
}

// queueCopy queues a copy of the question for the writer.
func (t *transport) queueCopy(q *Question) {
	q.queued = true
	t.send(outgoing{q: q, id: q.id})
}

// send queues a message for the writer, and starts the writer if it does not run.
func (t *transport) send(o outgoing) {
	t.queue = append(t.queue, o)
	if !t.writing {
		t.writing = true
		go t.write()
	}
}

// pace returns how long an answer may take before another copy is sent.
func (t *transport) pace() time.Duration { return max(AttemptTimeout, 2*t.slow) }

// subscribe creates the subscription of the inbox. Only the writer calls it.
func (t *transport) subscribe() error {
	if t.subscribed {
		return nil
	}
	sub, err := t.conn.Subscribe(t.inbox+"*", t.received)
	if err != nil {
		return err
	}
	if sub != nil {
		_ = sub.SetPendingLimits(-1, -1) // no limits; if this fails, a dropped answer is requested again
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
	now := t.now()
	q, open := t.unanswered[id]
	switch {
	case !open:
	case q.many:
		q.asked = now
	default:
		delete(t.unanswered, id)
		t.measure(now - q.first)
		if q.round == nil && q.before == nil { // the answer to a batch, or within a round, may have waited for other messages
			t.distance.add(now, now-q.first)
		}
	}
	t.mu.Unlock()
	if !open {
		return
	}
	if r := q.round; r != nil {
		t.storage.strained(q.openBefore, now-q.asked)
	}
	q.Answer(m, nil)
}

// measure records how long an answer took. The caller holds the lock.
func (t *transport) measure(took time.Duration) {
	if took >= t.slow {
		t.slow = min(took, mostSlow)
		return
	}
	t.slow -= (t.slow - took) / 8
}

// distance is the shortest time in which the broker answers: the round trip and one request. It is
// the time of the fastest answer in this minute and the one before, so that it follows a change of
// the route. Only the method least may be called without the transport's lock.
type distance struct {
	began     time.Duration // of this minute, by the transport's time
	now, last time.Duration // the fastest answer in this minute and in the one before; 0: there was none
	fastest   atomic.Int64
}

func (d *distance) add(at, took time.Duration) {
	if at-d.began >= time.Minute {
		d.began, d.last, d.now = at, d.now, 0
	}
	if d.now == 0 || took < d.now {
		d.now = took
	}
	if d.fastest.Store(int64(d.now)); d.last > 0 && d.last < d.now {
		d.fastest.Store(int64(d.last))
	}
}

// least returns the distance; 0: it is not known yet.
func (d *distance) least() time.Duration { return time.Duration(d.fastest.Load()) }

// publishTimeout is how long a publication may stay unanswered or unsent while the broker
// answers quickly. A slow broker gets longer; see transport.publishLimit.
const publishTimeout = 5 * time.Second

// publishLimit returns how long a publication may stay open. The caller holds the lock.
func (t *transport) publishLimit() time.Duration {
	return min(max(publishTimeout, 3*t.pace()), 2*mostSlow)
}

// patrol ends the questions that have timed out or whose context has ended, and sends
// another copy of those that are due. If the connection was lost, all are due at once,
// because their answers are lost too.
func (t *transport) patrol() {
	connected, losses := t.link.Connected.Load(), t.link.Losses.Load()
	type unanswered struct {
		*Question
		why error
	}
	var ended []unanswered
	t.mu.Lock()
	now, lost := t.now(), losses != t.losses
	t.losses = losses
	for id, q := range t.unanswered {
		if why := t.endReason(q, now, lost); why != nil {
			delete(t.unanswered, id)
			ended = append(ended, unanswered{q, why})
			continue
		}
		if lost {
			q.first, q.next, q.soon, q.gap = now, now, true, 0
		}
		if connected && t.due(q, now) {
			t.queueCopy(q)
		}
	}
	if t.on = len(t.unanswered) > 0; t.on {
		t.timer.Reset(patrolEvery)
	}
	t.mu.Unlock()
	for _, q := range ended {
		q.Answer(nil, q.why)
	}
}

// due reports whether another copy of the question is due. It uses the current pace, not
// the pace when the last copy was sent. So while the answers to a burst arrive, each later
// than the one before, the rest of the burst only waits.
func (t *transport) due(q *Question, now time.Duration) bool {
	return now >= q.next && (q.soon || now-q.sent >= t.pace()) && !q.queued && !q.paused && !q.Once && !q.many
}

// endReason returns why a question ends without an answer, or nil.
func (t *transport) endReason(q *Question, now time.Duration, lost bool) error {
	switch {
	case q.ctx != nil && q.ctx.Err() != nil:
		return q.ctx.Err()
	case lost && (q.Once || q.many):
		return nats.ErrDisconnected
	case t.link.IsClosed():
		return nats.ErrConnectionClosed
	case q.Once && now-q.asked >= t.publishLimit():
		t.measure(now - q.asked) // count it as a slow answer: otherwise publishLimit would never grow for a broker that became slow
		return nats.ErrTimeout
	case q.limit != 0 && now-q.asked >= q.limit:
		return nats.ErrTimeout
	}
	return nil
}

// complain ends the open questions that the complaint names and that have FailDenied set.
func (t *transport) complain(complaint error) {
	var ended []*Question
	t.mu.Lock()
	for id, q := range t.unanswered {
		if q.FailDenied && link.Names(complaint, q.Subject()) {
			delete(t.unanswered, id)
			ended = append(ended, q)
		}
	}
	t.mu.Unlock()
	for _, q := range ended {
		q.Answer(nil, &deniedError{complaint, job.ErrUnknown})
	}
}
