package wire

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

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
			t.writeOne(&all[i])
		}
		clear(all)
		t.mu.Lock()
		t.spare = all[:0]
		t.mu.Unlock()
	}
}

// writeOne sends one message, or calls its function.
func (t *transport) writeOne(o *outgoing) {
	switch {
	case o.do != nil:
		o.do(t.conn)
	case o.q != nil:
		t.sendCopy(o.q, o.id)
	case !o.until.IsZero() && (!t.conn.IsConnected() || time.Now().Round(0).After(o.until)):
		// The client would buffer the message, or send it after its deadline.
	default:
		t.msg = nats.Msg{Subject: o.subject, Reply: o.reply, Data: o.data}
		_ = t.conn.PublishMsg(&t.msg)
	}
}

// sendCopy sends a copy of a question if the question is still open.
func (t *transport) sendCopy(q *Question, id uint64) {
	// Both calls may wait for the connection's lock, so they precede the check in begin.
	connected := t.conn.IsConnected()
	closed := !connected && t.conn.IsClosed()
	open, lost := t.begin(q, id, connected, closed)
	if lost != nil {
		q.Answer(nil, lost)
	}
	if !open {
		return
	}
	err := t.subscribe()
	if err == nil && q.before != nil {
		err = q.before(func(m *nats.Msg) error { return t.sendPart(q, id, m) })
	}
	if err == nil {
		var reply [64]byte
		t.msg = nats.Msg{Reply: string(strconv.AppendUint(append(reply[:0], t.inbox...), id, 36))}
		q.Compose(&t.msg)
		err = t.conn.PublishMsg(&t.msg)
	}
	if err == nil {
		q.written.Add(1)
		return
	}
	if Classify(err) != refused && !q.Once {
		return
	}
	t.mu.Lock()
	if open = t.unanswered[id] == q; open {
		delete(t.unanswered, id)
		q.copies--
	}
	t.mu.Unlock()
	if open {
		q.Answer(nil, err)
	}
}

// sendPart sends a message that must precede the question, if the question is still open.
func (t *transport) sendPart(q *Question, id uint64, m *nats.Msg) error {
	t.mu.Lock()
	open := t.unanswered[id] == q
	t.mu.Unlock()
	if !open {
		return context.Canceled
	}
	return t.conn.PublishMsg(m)
}

// begin counts a copy of the question, which the caller then sends. If open is false, the caller must
// not send it. If the question ends instead, lost is the reason.
func (t *transport) begin(q *Question, id uint64, connected, closed bool) (open bool, lost error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unanswered[id] != q {
		return false, nil
	}
	q.queued = false
	switch {
	case q.ctx != nil && q.ctx.Err() != nil:
		lost = q.ctx.Err()
	case closed:
		lost = nats.ErrConnectionClosed
	case !connected && (q.Once || q.many):
		// A client that buffers would send it later.
		lost = nats.ErrDisconnected
	case q.Once && time.Duration(now.UnixNano()-q.wall) > t.publishLimit():
		lost = nats.ErrTimeout // this process, or its machine, was suspended
	case !connected:
		q.next, q.soon = now.Sub(t.began), true // send it as soon as there is a connection
		return false, nil
	}
	if lost != nil {
		delete(t.unanswered, id)
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
