package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Source asks for a queue's messages and hands them on as they come.
//
// It speaks the pull protocol itself. The client library's Fetch forgets a
// request with the first status that ends it, and with it every message that is
// still under way on it: a leader that was deposed delivers, its successor has
// already said that the request is void, and the slot waits out a lease. Here the
// inboxes outlive the requests: whatever is delivered arrives, asked for or not.
//
// Each lane is an inbox with at most one request, so that it is known to which
// request a message belongs. It is safe for concurrent use.
type Source struct {
	s     *Store
	queue string
	next  string // where requests are sent
	group *priorityGroup
	lanes []*lane
	over  atomic.Bool // nothing is handed on any more
}

// priorityGroup is what a request says of its sender's place in the line.
type priorityGroup struct {
	Group    string `json:"group"`
	Priority int    `json:"priority,omitempty"`
}

// lane is one inbox.
type lane struct {
	sub   *nats.Subscription // only the transport's writer uses it
	inbox string             // of all its requests; each has one token more
	asked atomic.Int64       // the token of the newest request
}

// Source opens the queue as Queue does, for a worker of the given priority, 0 to
// 9: a lower one is served first while it asks. Zero is the default; another one
// needs a server that knows priorities (job.ErrInvalid).
func (l *Slots) Source(ctx context.Context, queue string, priority int) (*Source, error) {
	return l.s.source(l.s.slotStream(), queue, priority, func() error {
		_, err := l.Queue(ctx, queue)
		return err
	})
}

// Source is Slots.Source for what was set for the queue and has fired.
func (t *Timers) Source(ctx context.Context, queue string, priority int) (*Source, error) {
	return t.s.source(t.s.timerStream(), queue, priority, func() error {
		_, err := t.Queue(ctx, queue)
		return err
	})
}

// source asks the consumer of a queue on one of its streams, once open has it.
func (s *Store) source(stream, queue string, priority int, open func() error) (*Source, error) {
	if err := s.CheckPriority(priority); err != nil {
		return nil, err
	}
	if err := open(); err != nil {
		return nil, err
	}
	src := &Source{s: s, queue: queue, next: s.prefix + "CONSUMER.MSG.NEXT." + stream + "." + queue}
	if s.prioritizes() {
		src.group = &priorityGroup{WorkerGroup, priority}
	}
	return src, nil
}

// Listen opens the lanes; call it once. message is told of each message that
// comes on a lane, in time or late. ended is told that a lane's request is over
// before it was served in full: with an error when the queue has to be opened
// anew, or the request was wrong. Neither may block.
func (s *Source) Listen(lanes int, message func(lane int, m jetstream.Msg), ended func(lane int, err error)) error {
	if s.s.link().isClosed() {
		return fmt.Errorf("listen for queue %s: %w", s.queue, nats.ErrConnectionClosed)
	}
	for i := range lanes {
		l := &lane{inbox: s.s.conn().NewInbox()}
		s.lanes = append(s.lanes, l)
		s.s.transport.do(func(conn port) {
			if s.over.Load() {
				return
			}
			l.sub, _ = conn.Subscribe(l.inbox+".*", func(m *nats.Msg) { // fails with the connection only
				if s.over.Load() {
					return
				}
				if m.Reply != "" {
					message(i, delivered{m, s.s})
				} else if over, err := status(m); over && l.current(m.Subject) {
					ended(i, err)
				}
			})
		})
	}
	return nil
}

// Ask requests up to n messages on the lane, whose last request is over, for as
// long as d. It does not wait for anything.
func (s *Source) Ask(lane, n int, d time.Duration) error {
	if !s.s.Connected() {
		return nats.ErrDisconnected // or it would be sent when it has long been over
	}
	request, err := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
		*priorityGroup
	}{n, d, s.group})
	if err != nil {
		return err
	}
	l := s.lanes[lane]
	reply := l.inbox + "." + strconv.FormatInt(l.asked.Add(1), 10)
	s.s.transport.say(s.next, reply, request, time.Now().Round(0).Add(d))
	return nil
}

// Leave takes back what was asked for: the broker drops a request that nobody
// listens to. It returns when all that was delivered before has been handed on,
// or when ctx ends: nothing is handed on after that. It does not wait for the
// connection's lock.
func (s *Source) Leave(ctx context.Context) error {
	left := make(chan error, 1)
	s.s.transport.do(func(port) { s.drain(left) })
	select {
	case err := <-left:
		return err
	case <-ctx.Done():
		s.over.Store(true)
		s.s.transport.do(func(port) {
			for _, l := range s.lanes {
				if l.sub != nil {
					_ = l.sub.Unsubscribe() // one that is drained already is no error
				}
			}
		})
		return context.Cause(ctx)
	}
}

// drain ends the subscriptions, and says when all that they were given is handed on. Only
// the writer calls it.
func (s *Source) drain(left chan<- error) {
	var open sync.WaitGroup
	var failed []error
	for _, l := range s.lanes {
		if l.sub == nil {
			continue
		}
		open.Add(1)
		l.sub.SetClosedHandler(func(string) { open.Done() })
		if err := l.sub.Drain(); err != nil {
			l.sub.SetClosedHandler(nil)
			open.Done()
			failed = append(failed, err)
		}
	}
	go func() { open.Wait(); left <- errors.Join(failed...) }()
}

// current reports whether a status is of the lane's newest request: one that came
// late says nothing of the next.
func (l *lane) current(subject string) bool {
	token := subject[strings.LastIndexByte(subject, '.')+1:]
	return token == strconv.FormatInt(l.asked.Load(), 10)
}

// What ends a request otherwise than by time.
var (
	errQueueDeleted = errors.New("the queue's consumer was deleted")
	errNoAnswer     = errors.New("nobody answers for the queue: it is gone, or has no leader now")
)

// status reads a message without a reply subject: what the broker says of a
// request. over: it is done with, served in full or not.
func status(m *nats.Msg) (over bool, err error) {
	code, description := m.Header.Get("Status"), m.Header.Get("Description")
	switch code {
	case "100": // a heartbeat
		return false, nil
	case "404", "408": // its time is over
		return true, nil
	case "503":
		return true, errNoAnswer
	case "409":
		switch strings.ToLower(description) {
		case "batch completed", "leadership change", "server shutdown":
			return true, nil // whoever leads next has to be asked
		case "consumer deleted":
			return true, errQueueDeleted
		}
	}
	return true, fmt.Errorf("the broker refused a request for slots: %s %s", code, description)
}

// delivered is a message as a consumer delivered it.
type delivered struct {
	m *nats.Msg
	s *Store
}

var _ jetstream.Msg = delivered{}

func (d delivered) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := d.m.Metadata()
	if err != nil {
		return nil, err
	}
	return &jetstream.MsgMetadata{
		Sequence:     jetstream.SequencePair{Consumer: meta.Sequence.Consumer, Stream: meta.Sequence.Stream},
		NumDelivered: meta.NumDelivered, NumPending: meta.NumPending, Timestamp: d.s.stamped(meta.Timestamp),
		Stream: meta.Stream, Consumer: meta.Consumer, Domain: meta.Domain,
	}, nil
}

func (d delivered) Data() []byte         { return d.m.Data }
func (d delivered) Headers() nats.Header { return d.m.Header }
func (d delivered) Subject() string      { return d.m.Subject }
func (d delivered) Reply() string        { return d.m.Reply }

func (d delivered) say(what string) error {
	d.s.transport.say(d.m.Reply, "", []byte(what), time.Time{})
	return nil
}

func (d delivered) Ack() error        { return d.say("+ACK") }
func (d delivered) Nak() error        { return d.say("-NAK") }
func (d delivered) InProgress() error { return d.say("+WPI") }
func (d delivered) Term() error       { return d.say("+TERM") }

func (d delivered) NakWithDelay(delay time.Duration) error {
	return d.say(nakWithDelay(delay))
}

func nakWithDelay(delay time.Duration) string {
	return fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds())
}

func (d delivered) TermWithReason(reason string) error { return d.say("+TERM " + reason) }

func (d delivered) DoubleAck(ctx context.Context) error {
	_, err := d.s.Request(ctx, &nats.Msg{Subject: d.m.Reply, Data: []byte("+ACK")})
	return err
}
