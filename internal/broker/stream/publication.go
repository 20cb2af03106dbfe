package stream

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// publication is a slot's message on its way to the stream. It needs no revision. The stream
// drops a second copy by its message ID; if it keeps both, the second worker finds the slot's
// record. A publication ends without an answer when the connection is lost, or after some
// seconds. The producer of the slot then decides whether to send it again. The transport's
// writer builds the message while the producer computes the next slots.
//
// A publication may travel in a batch with others; see wire.Group. A batch settles its
// publications only if it is stored. The server refuses the whole batch if it knows one message ID
// of it. So after a refusal, each publication is sent by itself, the same bytes under the same
// message ID. If the batch gets no answer, each publication is unknown.
type publication struct {
	wire.Question
	slots   *Slots
	queue   string
	message core.Message
	payload []byte
	done    func(duplicate bool, err error)
	at      *uint64                         // receives the sequence at which the stream has the message; may be nil
	ended   func(duplicate bool, err error) // ends the trace
}

func (l *Slots) publication() *publication {
	p, ok := l.s.Transport.Publications.Get().(*publication)
	if !ok {
		p = &publication{}
		p.Asker, p.Once, p.FailDenied = p, true, true
	}
	p.slots = l
	return p
}

// send sends the publication, through the stream's group if it has one.
func (p *publication) send() {
	if group := p.slots.s.group; group != nil {
		group.Send(p)
		return
	}
	p.slots.s.Transport.Ask(&p.Question)
}

func (p *publication) Subject() string { return p.slots.subjectOf(p.queue, &p.message) }

func (p *publication) Compose(m *nats.Msg) {
	m.Subject, m.Header, m.Data = p.Subject(), p.slots.s.headers.of(&p.message), p.payload
}

func (p *publication) Size() int { return len(p.payload) }

// Stored reports that the batch of the publication was stored.
func (p *publication) Stored(sequence uint64) {
	p.note(sequence)
	p.report(false, nil)
}

func (p *publication) note(sequence uint64) {
	if p.at != nil {
		*p.at = sequence
	}
}

// Unstored sends the publication by itself, unless its batch got no answer. Then the producer
// decides whether to send it again, as after any publication without an answer.
func (p *publication) Unstored(err error, unanswered bool) {
	if unanswered {
		p.Answer(nil, err)
		return
	}
	p.slots.s.Transport.Ask(&p.Question)
}

// Answer reports the result of the publication.
func (p *publication) Answer(m *nats.Msg, err error) {
	var a wire.Ack
	if err == nil {
		a, err = wire.PubAck(m)
	}
	if err == nil {
		err = p.slots.s.Misplaced(p.Subject, a.Domain)
	}
	if err != nil {
		err = p.failed(err)
	}
	if err == nil {
		p.note(a.Sequence())
	}
	p.report(a.Duplicate, err)
	if m != nil && p.Free() {
		p.message, p.payload, p.done, p.at, p.ended = core.Message{}, nil, nil, nil, nil
		p.slots.s.Transport.Publications.Put(p)
	}
}

func (p *publication) report(duplicate bool, err error) {
	p.ended(duplicate, err)
	p.done(duplicate, err)
	p.Leave()
}

// failed wraps err with what is known of the publication: unknown, or refused.
func (p *publication) failed(err error) error {
	if wire.Classify(err) == wire.Unanswered && !errors.Is(err, job.ErrDenied) {
		return fmt.Errorf("publish %s: %w: it may have happened: %w", p.message.Slot, job.ErrUnknown, err)
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
