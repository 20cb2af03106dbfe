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

	mu    sync.Mutex
	inbox string // with the last dot; empty: not subscribed yet
	last  uint64
	open  map[uint64]*question
}

// question is one write that is not answered yet.
type question struct {
	answer chan *nats.Msg
	timer  *time.Timer
}

var questions = sync.Pool{New: func() any {
	q := &question{answer: make(chan *nats.Msg, 1), timer: time.NewTimer(time.Hour)}
	q.timer.Stop()
	return q
}}

func newPipe(conn *nats.Conn) *pipe { return &pipe{conn: conn, open: map[uint64]*question{}} }

// ask sends m, whose Reply it sets, and waits for the answer: attemptTimeout at
// the longest.
func (p *pipe) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	q := questions.Get().(*question)
	id, err := p.begin(q, m)
	if err != nil {
		questions.Put(q)
		return nil, err
	}
	if err := p.conn.PublishMsg(m); err != nil {
		p.end(id, q)
		return nil, err
	}
	q.timer.Reset(attemptTimeout)
	select {
	case answer := <-q.answer:
		q.timer.Stop()
		questions.Put(q)
		return answer, nil
	case <-q.timer.C:
		err = nats.ErrTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.end(id, q)
	return nil, err
}

// begin enters the question under a reply subject of its own.
func (p *pipe) begin(q *question, m *nats.Msg) (id uint64, err error) {
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
	m.Reply = p.inbox + strconv.FormatUint(p.last, 36)
	return p.last, nil
}

// end gives a question up. An answer that comes now is nobody's.
func (p *pipe) end(id uint64, q *question) {
	p.mu.Lock()
	_, open := p.open[id]
	delete(p.open, id)
	p.mu.Unlock()
	if !open {
		<-q.answer // it was answered just now
	}
	q.timer.Stop()
	questions.Put(q)
}

func (p *pipe) answered(m *nats.Msg) {
	if len(m.Subject) <= len(p.inbox) {
		return
	}
	id, err := strconv.ParseUint(m.Subject[len(p.inbox):], 36, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	q := p.open[id]
	delete(p.open, id)
	p.mu.Unlock()
	if q != nil {
		q.answer <- m
	}
}

// pubAck reads the broker's answer to a write: {"stream":"S","seq":12}, with more
// members when there is more to say.
func pubAck(m *nats.Msg) (seq uint64, domain string, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, "", jetstream.ErrNoStreamResponse
	}
	if seq := plainAck(m.Data); seq > 0 {
		return seq, "", nil
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
		Domain string              `json:"domain"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil, answer.Error == nil && (answer.Stream == "" || answer.Seq == 0):
		return 0, "", jetstream.ErrInvalidJSAck
	case answer.Error != nil:
		return 0, "", answer.Error
	}
	return answer.Seq, answer.Domain, nil
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
