package kv

import (
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// publishTimeout is how long a publication may go unanswered.
	publishTimeout = 5 * time.Second

	// lookEvery is how often those that are not answered are looked at.
	lookEvery = 100 * time.Millisecond
)

// publisher sends messages without waiting, and tells what was answered to each.
// The client library does as much; this does it with a third of the allocations,
// since every slot passes here.
//
// Its one subscription is made with the first message and ends with the connection.
// It is safe for concurrent use.
type publisher struct {
	conn *nats.Conn

	mu    sync.Mutex
	inbox string // with the last dot; empty: not subscribed yet
	last  uint64
	open  map[uint64]publication

	// look is the timer of the next look at what is open; nil: nothing is.
	// reconnects are those of the connection at the last look.
	look       *time.Timer
	reconnects uint64
}

// publication is a message that is not answered yet.
type publication struct {
	sent     time.Time
	answered func(*nats.Msg, error)
}

func newPublisher(conn *nats.Conn) *publisher {
	return &publisher{conn: conn, open: map[uint64]publication{}}
}

// send sends m, whose Reply it sets. Unless it returns an error, answered is called
// once: with the answer, or with an error when there was none in time or the
// connection was lost meanwhile. It must not block.
func (p *publisher) send(m *nats.Msg, answered func(*nats.Msg, error)) error {
	if !p.conn.IsConnected() {
		return nats.ErrDisconnected // the client would keep it, and send it at some later time
	}
	id, err := p.begin(answered)
	if err != nil {
		return err
	}
	m.Reply = p.inbox + strconv.FormatUint(id, 36)
	if err := p.conn.PublishMsg(m); err != nil {
		if _, open := p.end(id); open {
			return err
		}
	}
	return nil
}

// begin enters a publication.
func (p *publisher) begin(answered func(*nats.Msg, error)) (id uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
	p.last++
	p.open[p.last] = publication{time.Now(), answered}
	return p.last, nil
}

// end takes out a publication, which is there but once.
func (p *publisher) end(id uint64) (_ publication, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
		pub.answered(m, nil)
	}
}

// review gives up what has not been answered in time, and all that was under way
// when the connection was lost: its answers are lost with it.
func (p *publisher) review() {
	now, reconnects, lost := time.Now(), p.conn.Stats().Reconnects, error(nil)
	if !p.conn.IsConnected() {
		lost = nats.ErrDisconnected
	}
	var late []publication
	p.mu.Lock()
	if reconnects != p.reconnects {
		p.reconnects, lost = reconnects, nats.ErrDisconnected
	}
	for id, pub := range p.open {
		if lost != nil || now.Sub(pub.sent) >= publishTimeout {
			delete(p.open, id)
			late = append(late, pub)
		}
	}
	if len(p.open) == 0 {
		p.look = nil
	} else {
		p.look.Reset(lookEvery)
	}
	p.mu.Unlock()
	if lost == nil {
		lost = nats.ErrTimeout
	}
	for _, pub := range late {
		pub.answered(nil, lost)
	}
}
