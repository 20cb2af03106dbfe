package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pipe puts many writes to the broker at a time, each of which is answered on its
// own. The client library does as much, sync or async; this does it with a third
// of the allocations, and the ledger is where a worker spends most of its time.
//
// Its one subscription is made with the first write and ends with the connection.
// It is safe for concurrent use.
type pipe struct {
	conn *nats.Conn
	out  outbox

	mu    sync.Mutex
	inbox string // with the last dot; empty: not subscribed yet
	last  uint64

	settled sync.Pool // of *sending, to be used again

	// open are the questions that are not answered yet. Whoever takes one out tells
	// what became of it.
	open map[uint64]question

	// patrol looks for those that have waited for too long; on: it will.
	patrol *time.Timer
	on     bool
}

// patrolEvery is how exact the end of a question is that goes unanswered: one timer
// for all of them costs nothing, one each was a tenth of a short slot.
const patrolEvery = 50 * time.Millisecond

// question is one write that is not answered yet.
type question struct {
	ctx      context.Context //nolint:containedctx // it is looked at until the question ends
	until    time.Time
	answered func(*nats.Msg, error)
}

func newPipe(conn *nats.Conn) *pipe {
	p := &pipe{conn: conn, open: map[uint64]question{}}
	p.out = outbox{conn: conn, failed: func(id uint64, err error) { p.tell(id, nil, err) }}
	p.patrol = time.AfterFunc(time.Hour, p.giveUp)
	p.patrol.Stop()
	return p
}

// ask sends m and tells the answer, or why there was none: after about attemptTimeout
// at the longest, or when ctx has ended. answered is called once, by any goroutine,
// this one included, and must not block: the answers to all others wait for it. The
// message's header must not be written to any more: a copy may yet lie in the outbox.
func (p *pipe) ask(ctx context.Context, m *nats.Msg, answered func(*nats.Msg, error)) {
	err := ctx.Err()
	if err != nil {
		answered(nil, err)
		return
	}
	id, err := p.begin(question{ctx, time.Now().Add(attemptTimeout), answered})
	if err != nil {
		answered(nil, err)
		return
	}
	_ = p.out.send(outgoing{m.Subject, p.replyTo(id), m.Header, m.Data, id}) // which tells of it
}

// replyTo is where the answer to a question goes.
func (p *pipe) replyTo(id uint64) string {
	var b [64]byte
	return string(strconv.AppendUint(append(b[:0], p.inbox...), id, 36))
}

// begin enters the question under an ID of its own.
func (p *pipe) begin(q question) (id uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbox == "" {
		inbox := p.conn.NewInbox() + "."
		if _, err := p.conn.Subscribe(inbox+"*", p.answered); err != nil {
			return 0, err
		}
		p.inbox = inbox
	}
	p.last++
	p.open[p.last] = q
	if !p.on {
		p.on = true
		p.patrol.Reset(patrolEvery)
	}
	return p.last, nil
}

// tell ends a question. One that has ended already hears of nothing more.
func (p *pipe) tell(id uint64, answer *nats.Msg, err error) {
	p.mu.Lock()
	q, open := p.open[id]
	delete(p.open, id)
	p.mu.Unlock()
	if open {
		q.answered(answer, err)
	}
}

// giveUp ends the questions that have waited for too long, or whose context has
// ended. An answer that comes later is nobody's.
func (p *pipe) giveUp() {
	now := time.Now()
	type unanswered struct {
		question
		why error
	}
	var given []unanswered
	p.mu.Lock()
	for id, q := range p.open {
		err := q.ctx.Err()
		if err == nil && now.After(q.until) {
			err = nats.ErrTimeout
		}
		if err != nil {
			delete(p.open, id)
			given = append(given, unanswered{q, err})
		}
	}
	if p.on = len(p.open) > 0; p.on {
		p.patrol.Reset(patrolEvery)
	}
	p.mu.Unlock()
	for _, q := range given {
		q.answered(nil, q.why)
	}
}

func (p *pipe) answered(m *nats.Msg) {
	if len(m.Subject) <= len(p.inbox) {
		return
	}
	if id, err := strconv.ParseUint(m.Subject[len(p.inbox):], 36, 64); err == nil {
		p.tell(id, m, nil)
	}
}

// ack is what the broker answers when it has stored a message, or (duplicate) has
// had it already.
type ack struct {
	seq       uint64
	domain    string
	duplicate bool
}

// pubAck reads the broker's answer to a write: {"stream":"S","seq":12}, with more
// members when there is more to say.
func pubAck(m *nats.Msg) (ack, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return ack{}, jetstream.ErrNoStreamResponse
	}
	if seq := plainAck(m.Data); seq > 0 {
		return ack{seq: seq}, nil
	}
	var answer struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Seq       uint64              `json:"seq"`
		Domain    string              `json:"domain"`
		Duplicate bool                `json:"duplicate"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil, answer.Error == nil && (answer.Stream == "" || answer.Seq == 0):
		return ack{}, jetstream.ErrInvalidJSAck
	case answer.Error != nil:
		return ack{}, answer.Error
	}
	return ack{answer.Seq, answer.Domain, answer.Duplicate}, nil
}

// plainAck reads an answer that says where a message was stored and nothing else;
// 0 for any other.
func plainAck(data []byte) (seq uint64) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return 0
	}
	_, rest, _ = bytes.Cut(rest, []byte(`"`)) // no stream's name has a quote in it
	rest, ok = bytes.CutPrefix(rest, []byte(`,"seq":`))
	if !ok {
		return 0
	}
	rest, ok = bytes.CutSuffix(rest, []byte("}"))
	if !ok || len(rest) == 0 || len(rest) > 19 {
		return 0
	}
	for _, c := range rest {
		if c < '0' || c > '9' {
			return 0
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq
}
