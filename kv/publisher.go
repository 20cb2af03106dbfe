package kv

import (
	"strconv"
	"sync"
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// publishTimeout is how long a publication may go unanswered, or unsent.
	publishTimeout = 5 * time.Second

	// lookEvery is how often those that are not answered are looked at.
	lookEvery = 100 * time.Millisecond

	// handAtOnce is how many are handed to the connection before the publisher looks
	// whether it still can.
	handAtOnce = 64
)

// publisher sends slots without waiting, and tells what was answered to each. Whoever
// has one leaves it here; a goroutine of its own, which ends when there is nothing to
// do, makes the messages and hands them to the connection: so that a producer computes
// the next slots meanwhile. The client library does as much, but for the goroutine; this
// does it with less than half of the allocations, since every slot passes here.
//
// Its one subscription is made with the first slot and ends with the connection.
// It is safe for concurrent use.
type publisher struct {
	conn  *nats.Conn
	slots *Slots // is told of each publication, once

	mu    sync.Mutex
	queue []outgoingSlot // to be sent
	spare []outgoingSlot // an empty one, to be used again
	since time.Time      // when the first of the queue came
	busy  bool           // the goroutine is at work

	// open are the publications that are not answered yet.
	openMu sync.Mutex
	began  time.Time
	inbox  string // with the last dot; empty: not subscribed yet
	last   uint64
	open   map[uint64]publication

	// look is the timer of the next look at what is open; nil: nothing is.
	// reconnects are those of the connection at the last look.
	look       *time.Timer
	reconnects uint64
}

// outgoingSlot is a slot that is to be sent.
type outgoingSlot struct {
	job.Message
	payload []byte
	publication
}

// publication is a slot of which somebody waits to hear.
type publication struct {
	queue    string
	slot     job.Slot
	sent     time.Duration // since the publisher began
	answered func(duplicate bool, err error)
	ended    func(duplicate bool, err error) // of the trace
}

func newPublisher(conn *nats.Conn, slots *Slots) *publisher {
	return &publisher{conn: conn, slots: slots, began: time.Now(), open: map[uint64]publication{}}
}

// send has a slot sent. The publisher tells of it once: what was answered, or an error
// when there was no answer in time, the connection was lost meanwhile, or there is none.
func (p *publisher) send(s outgoingSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.since = time.Now().Round(0) // a clock that goes on while the machine sleeps
	}
	p.queue = append(p.queue, s)
	if !p.busy {
		p.busy = true
		go p.handOver()
	}
}

// handOver sends what there is to send.
func (p *publisher) handOver() {
	h := newHeaders(p.slots.s.slotStream())
	for {
		p.mu.Lock()
		all, since := p.queue, p.since
		p.queue, p.spare = p.spare, nil
		p.busy = len(all) > 0
		p.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for rest := all; len(rest) > 0; {
			n := min(len(rest), handAtOnce)
			p.hand(rest[:n], h, since)
			rest = rest[n:]
		}
		clear(all)
		p.mu.Lock()
		p.spare = all[:0]
		p.mu.Unlock()
	}
}

// hand sends some slots, the first of which have waited since then.
func (p *publisher) hand(some []outgoingSlot, h *headers, since time.Time) {
	first, err := p.begin(some, since)
	for i := range some {
		s := &some[i]
		if err != nil {
			p.slots.answered(s.publication, nil, err)
			continue
		}
		id := first + uint64(i)
		failed := p.conn.PublishMsg(&nats.Msg{
			Subject: p.slots.subject(s.queue, s.Slot.Job), Reply: p.inbox + strconv.FormatUint(id, 36),
			Header: h.of(&s.Message), Data: s.payload,
		})
		if failed == nil {
			continue
		}
		if pub, open := p.end(id); open {
			p.slots.answered(pub, nil, failed)
		}
	}
}

// begin enters publications under numbers from first on. An error says that they
// cannot be sent now, or are not to be any more: this process may have slept since they
// were left here.
func (p *publisher) begin(some []outgoingSlot, since time.Time) (first uint64, err error) {
	now := time.Now()
	switch {
	case !p.conn.IsConnected():
		return 0, nats.ErrDisconnected // the client would keep them, and send them at some later time
	case now.Round(0).Sub(since) > publishTimeout:
		return 0, nats.ErrTimeout
	}
	p.openMu.Lock()
	defer p.openMu.Unlock()
	if p.inbox == "" {
		inbox := p.conn.NewInbox() + "."
		if _, err := p.conn.Subscribe(inbox+"*", p.answer); err != nil {
			return 0, err
		}
		p.inbox = inbox
	}
	if p.look == nil {
		p.reconnects = p.conn.Stats().Reconnects
		p.look = time.AfterFunc(lookEvery, p.review)
	}
	first = p.last + 1
	for _, s := range some {
		p.last++
		s.sent = now.Sub(p.began)
		p.open[p.last] = s.publication
	}
	return first, nil
}

// end takes out a publication, which is there but once.
func (p *publisher) end(id uint64) (_ publication, open bool) {
	p.openMu.Lock()
	defer p.openMu.Unlock()
	pub, open := p.open[id]
	delete(p.open, id)
	return pub, open
}

func (p *publisher) answer(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[min(len(p.inbox), len(m.Subject)):], 36, 64)
	if err != nil {
		return
	}
	if pub, open := p.end(id); open {
		p.slots.answered(pub, m, nil)
	}
}

// review gives up what has not been answered in time, and all that was under way
// when the connection was lost: its answers are lost with it.
func (p *publisher) review() {
	now, reconnects, lost := time.Since(p.began), p.conn.Stats().Reconnects, error(nil)
	if !p.conn.IsConnected() {
		lost = nats.ErrDisconnected
	}
	var late []publication
	p.openMu.Lock()
	if reconnects != p.reconnects {
		p.reconnects, lost = reconnects, nats.ErrDisconnected
	}
	for id, pub := range p.open {
		if lost != nil || now-pub.sent >= publishTimeout {
			delete(p.open, id)
			late = append(late, pub)
		}
	}
	if len(p.open) == 0 {
		p.look = nil
	} else {
		p.look.Reset(lookEvery)
	}
	p.openMu.Unlock()
	if lost == nil {
		lost = nats.ErrTimeout
	}
	for _, pub := range late {
		p.slots.answered(pub, nil, lost)
	}
}

// headers are those of one slot after the other: the client writes them out before it
// returns, and a map for each would be half of what a publication costs.
type headers struct {
	header nats.Header
	values [16]string
	stream string
}

func newHeaders(stream string) *headers { return &headers{header: nats.Header{}, stream: stream} }

// of is the message's headers, until it is called again.
func (h *headers) of(m *job.Message) nats.Header {
	clear(h.header)
	n := 0
	set := func(name, value string) {
		h.values[n] = value
		h.header[name] = h.values[n : n+1 : n+1]
		n++
	}
	m.EachHeader(set)
	set(jetstream.ExpectedStreamHeader, h.stream)
	return h.header
}
