package kv

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// publishTimeout is how long a publication may stay unanswered or unsent while the broker
// answers quickly. A slow broker gets longer; see transport.patience.
const publishTimeout = 5 * time.Second

// publication is a slot's message on its way to the stream. It needs no revision, because
// the stream folds a copy by its message ID, or the worker finds the slot's record. It ends
// when the connection is lost, or after some seconds. The producer of the slot then decides
// whether to send it again. The transport's writer builds the message while the producer
// computes the next slots.
type publication struct {
	question
	slots    *Slots
	queue    string
	message  core.Message
	payload  []byte
	answered func(duplicate bool, err error)
	ended    func(duplicate bool, err error) // ends the trace
}

func (l *Slots) publication() *publication {
	p, ok := l.s.transport.publications.Get().(*publication)
	if !ok {
		p = &publication{}
		p.asker, p.once, p.endsDenied = p, true, true
	}
	p.slots = l
	return p
}

func (p *publication) subject() string { return p.slots.subject(p.queue, p.message.Slot.Job) }

func (p *publication) compose(m *nats.Msg) {
	m.Subject, m.Header, m.Data = p.subject(), p.slots.s.headers.of(&p.message), p.payload
}

// answer reports the result of the publication.
func (p *publication) answer(m *nats.Msg, err error) {
	var a ack
	if err == nil {
		a, err = pubAck(m)
	}
	if err == nil {
		err = p.slots.s.misplaced(p.subject, a.domain)
	}
	if err != nil {
		err = p.failed(err)
	}
	p.ended(a.duplicate, err)
	answered := p.answered
	if m != nil && p.free() {
		p.message, p.payload, p.answered, p.ended = core.Message{}, nil, nil, nil
		p.slots.s.transport.publications.Put(p)
	}
	answered(a.duplicate, err)
}

// failed wraps err with what is known of the publication: unknown, or refused.
func (p *publication) failed(err error) error {
	if classify(err) == unanswered {
		return fmt.Errorf("publish %s: %w: %w", p.message.Slot, job.ErrUnknown, err)
	}
	return fmt.Errorf("publish %s: %w", p.message.Slot, err)
}

// headers builds the headers of one slot after another. The client serializes them before
// it returns, so one map is enough. A map for each message would be half of a publication's
// cost. Only the transport's writer uses it.
type headers struct {
	header nats.Header
	values [16]string
	stream string
}

func newHeaders(stream string) *headers { return &headers{header: nats.Header{}, stream: stream} }

// of returns the message's headers, which are valid until the next call.
func (h *headers) of(m *core.Message) nats.Header {
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
