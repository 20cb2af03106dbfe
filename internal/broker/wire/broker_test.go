package wire

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/link"
)

// memory holds the single key of a fakeBroker. If put or get returns errTimeout, the
// broker does not answer.
type memory interface {
	put(m *nats.Msg, revision uint64) (uint64, error)
	get() (Entry, error)
}

// fakeBroker is a transport's connection to a simulated broker, whose answers a test
// controls. It is made for a synctest bubble.
type fakeBroker struct {
	memory
	transport *transport

	// late returns the delay of the next answer. Nil: no delay.
	late func() time.Duration

	mu     sync.Mutex
	sent   []string // the subjects of the published messages
	closed bool
}

func newFakeBroker(m memory) *fakeBroker {
	b := &fakeBroker{memory: m}
	l := &link.Link{Closed: make(chan struct{})}
	l.Connected.Store(true)
	b.transport = newTransport(b, l, "inbox")
	return b
}

// bucket returns a bucket with the broker's only key.
func (b *fakeBroker) bucket() Bucket {
	return Bucket{Wire: Wire{Transport: b.transport, Prefix: defaultPrefix}, Name: "b", Stream: "KV_b", Root: "$KV.b."}
}

func (b *fakeBroker) IsConnected() bool { return b.transport.link.Connected.Load() && !b.IsClosed() }

func (b *fakeBroker) IsClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (b *fakeBroker) Subscribe(string, nats.MsgHandler) (*nats.Subscription, error) {
	return nil, nil //nolint:nilnil // the transport does not use the subscription
}

func (b *fakeBroker) PublishMsg(m *nats.Msg) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, m.Subject)
	copied := &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: append([]byte(nil), m.Data...)}
	for name, values := range m.Header {
		copied.Header[name] = append([]string(nil), values...)
	}
	var answer any
	var err error
	if strings.Contains(m.Subject, ".MSG.GET.") {
		answer, err = b.read(copied)
	} else {
		answer, err = b.store(copied)
	}
	var api *jetstream.APIError
	switch reply := (&nats.Msg{Subject: m.Reply}); {
	case errors.Is(err, errTimeout):
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		reply.Header = nats.Header{"Status": {"503"}}
		b.reply(reply)
	case errors.As(err, &api):
		reply.Data, _ = json.Marshal(map[string]any{"error": api})
		b.reply(reply)
	case err != nil:
		return err
	default:
		reply.Data, _ = json.Marshal(answer)
		b.reply(reply)
	}
	return nil
}

func (b *fakeBroker) reply(m *nats.Msg) {
	var late time.Duration
	if b.late != nil {
		late = b.late()
	}
	time.AfterFunc(late, func() { b.transport.received(m) })
}

func (b *fakeBroker) store(m *nats.Msg) (any, error) {
	revision, _ := strconv.ParseUint(m.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	m.Header.Del(jetstream.ExpectedStreamHeader)
	won, err := b.put(m, revision)
	return map[string]any{"stream": "KV_b", "seq": won}, err
}

func (b *fakeBroker) read(request *nats.Msg) (any, error) {
	var of struct {
		Subject string `json:"last_by_subj"`
	}
	_ = json.Unmarshal(request.Data, &of)
	var e Entry
	var err error
	if many, ok := b.memory.(interface{ find(string) (Entry, error) }); ok {
		e, err = many.find(of.Subject)
	} else {
		e, err = b.get()
	}
	if errors.Is(err, ErrNothing) {
		err = &jetstream.APIError{Code: 404, ErrorCode: jetstream.JSErrCodeMessageNotFound}
	}
	return map[string]any{"message": map[string]any{"subject": "$KV.b.k", "seq": e.Revision, "data": e.Data, "time": time.Now()}}, err
}

// count returns the number of messages published to subjects that contain what.
func (b *fakeBroker) count(what string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, subject := range b.sent {
		if strings.Contains(subject, what) {
			n++
		}
	}
	return n
}
