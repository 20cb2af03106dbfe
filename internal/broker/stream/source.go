package stream

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

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/job"
)

// Source pulls a queue's messages and passes them on as they arrive.
//
// Source implements the pull protocol itself. The client library's Fetch drops a request
// at the first status that ends it, and with it every message still in flight for that
// request. For example, a deposed leader delivers a message after its successor has
// ended the request. The client drops the message, and the slot is redelivered only after its
// ack wait. A Source keeps its inboxes when requests end, so it receives every message that is
// delivered.
//
// Each lane is an inbox with at most one open request, so each message belongs to a known
// request. A Source is safe for concurrent use.
type Source struct {
	s      *Store
	queue  string
	next   string // subject of pull requests
	group  *priorityGroup
	lanes  []*lane
	opened time.Time
	ended  atomic.Bool // messages are no longer passed on

	// bytes bounds the messages of a request. It grows if the next message is larger.
	bytes atomic.Int64
}

// priorityGroup is the part of a pull request that sets its priority.
type priorityGroup struct {
	Group    string `json:"group"`
	Priority int    `json:"priority,omitempty"`
}

// lane is one inbox.
type lane struct {
	sub   *nats.Subscription // only the transport's writer uses it
	inbox string             // prefix of the reply subjects; each request appends a token
	asked atomic.Int64       // token of the newest request
	empty atomic.Bool        // the newest request has brought no message
}

// Queue returns the durable consumer of a queue, and creates it if there is none. It
// compares an existing consumer and never updates it. If a difference matters, the
// error is job.ErrMismatch.
func (l *Slots) Queue(ctx context.Context, queue string) (jetstream.Consumer, error) {
	return l.s.Queue(ctx, l.s.SlotStream(), queue)
}

// Queue is Slots.Queue for the fired timers of a queue. If the namespace has no stream
// of timers, the error is ErrNoTimers.
func (t *Timers) Queue(ctx context.Context, queue string) (jetstream.Consumer, error) {
	c, err := t.s.Queue(ctx, t.s.TimerStream(), queue)
	if wire.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
		err = t.missing()
	}
	return c, err
}

// Bulk is Slots.Source for the bulk lane of the queue.
func (l *Slots) Bulk(ctx context.Context, queue string, priority int) (*Source, error) {
	return l.Source(ctx, layout.BulkLane(queue), priority)
}

// Source opens the queue, as Queue does, for a worker with the given priority, 0 to 9.
// The server serves requests with a lower number first. Zero is the default. If the
// server does not support priorities, the error for any other value wraps job.ErrInvalid.
func (l *Slots) Source(ctx context.Context, queue string, priority int) (*Source, error) {
	return l.s.source(l.s.SlotStream(), queue, priority, func() error {
		_, err := l.Queue(ctx, queue)
		return err
	})
}

// Source is Slots.Source for the fired timers of the queue.
func (t *Timers) Source(ctx context.Context, queue string, priority int) (*Source, error) {
	return t.s.source(t.s.TimerStream(), queue, priority, func() error {
		_, err := t.Queue(ctx, queue)
		return err
	})
}

// source returns a Source of the queue's consumer on the stream, after open has succeeded.
func (s *Store) source(stream, queue string, priority int, open func() error) (*Source, error) {
	if err := s.CheckPriority(priority); err != nil {
		return nil, err
	}
	if err := open(); err != nil {
		return nil, err
	}
	src := &Source{s: s, queue: queue, opened: time.Now(), next: s.Prefix + "CONSUMER.MSG.NEXT." + stream + "." + queue}
	src.bytes.Store(int64(s.PullBytes()))
	if s.Prioritizes() {
		src.group = &priorityGroup{layout.WorkerGroup, priority}
	}
	return src, nil
}

// Listen opens the lanes. Call it once. It calls message for each message that arrives
// on a lane, even after its request has ended. It calls ended when a lane's request ends
// before it was served in full. If the queue must be opened again or the request was
// wrong, ended gets an error. Neither function may block.
func (s *Source) Listen(lanes int, message func(lane int, m jetstream.Msg), ended func(lane int, err error)) error {
	if s.s.Link().IsClosed() {
		return fmt.Errorf("listen for queue %s: %w", s.queue, nats.ErrConnectionClosed)
	}
	for i := range lanes {
		l := &lane{inbox: s.s.Conn().NewInbox()}
		s.lanes = append(s.lanes, l)
		s.s.Transport.Do(func(conn wire.Port) {
			if s.ended.Load() {
				return
			}
			l.sub, _ = conn.Subscribe(l.inbox+".*", func(m *nats.Msg) { // fails only if the connection is closed
				if s.ended.Load() {
					return
				}
				if m.Reply != "" {
					l.empty.Store(false)
					message(i, delivered{m, wire.NewAcks(&s.s.Wire, m.Reply)})
				} else if over, err := status(m); over && l.current(m.Subject) {
					if errors.Is(err, errTooLarge) {
						err = nil // the next request brings the message
						if l.empty.Load() {
							s.bytes.Store(2 * s.bytes.Load())
						}
					}
					ended(i, err)
				}
			})
		})
	}
	return nil
}

// Ask requests up to n messages, and a bounded number of bytes, on the lane for the duration d. The lane's previous
// request must have ended. Ask does not block. If the server has reported that this login may not
// ask, the error is job.ErrDenied.
func (s *Source) Ask(lane, n int, d time.Duration) error {
	if !s.s.Connected() {
		return nats.ErrDisconnected // a buffered request would be sent after it has expired
	}
	if err := s.s.WithComplaints(s.next, s.opened, nats.ErrTimeout); errors.Is(err, job.ErrDenied) {
		return err // the server has not answered an earlier request, and will answer none
	}
	request, err := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Bytes   int64         `json:"max_bytes"`
		Expires time.Duration `json:"expires"`
		*priorityGroup
	}{n, s.bytes.Load(), d, s.group})
	if err != nil {
		return err
	}
	l := s.lanes[lane]
	l.empty.Store(true)
	reply := l.inbox + "." + strconv.FormatInt(l.asked.Add(1), 10)
	s.s.Transport.Publish(s.next, reply, request, time.Now().Round(0).Add(d))
	return nil
}

// Leave ends the open requests: the broker drops a request whose inbox has no subscriber.
// Leave returns when every message delivered before has been passed on, or when ctx
// ends. After that no message is passed on. Leave does not wait for the connection's
// lock.
func (s *Source) Leave(ctx context.Context) error {
	left := make(chan error, 1)
	s.s.Transport.Do(func(wire.Port) { s.drain(left) })
	select {
	case err := <-left:
		return err
	case <-ctx.Done():
		s.ended.Store(true)
		s.s.Transport.Do(func(wire.Port) {
			for _, l := range s.lanes {
				if l.sub != nil {
					_ = l.sub.Unsubscribe() // a subscription that is drained already is no error
				}
			}
		})
		return context.Cause(ctx)
	}
}

// drain drains the subscriptions, and signals left when all their messages have been
// passed on. Only the transport's writer calls it.
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

// current reports whether a status belongs to the lane's newest request. A late status
// of an older request says nothing about the newest one.
func (l *lane) current(subject string) bool {
	token := subject[strings.LastIndexByte(subject, '.')+1:]
	return token == strconv.FormatInt(l.asked.Load(), 10)
}

// Errors that end a request before it expires.
var (
	errQueueDeleted = errors.New("the queue's consumer was deleted")
	errTooLarge     = errors.New("the next message has more bytes than the request has left")
	errNoAnswer     = errors.New("the queue does not answer: it was removed, or has no leader now")
)

// status decodes a message without a reply subject, which is the broker's status of a
// request. over reports that the request has ended, served in full or not.
func status(m *nats.Msg) (over bool, err error) {
	code, description := m.Header.Get("Status"), m.Header.Get("Description")
	switch code {
	case "100": // a heartbeat
		return false, nil
	case "404", "408": // the request expired
		return true, nil
	case "503":
		return true, errNoAnswer
	case "409":
		switch strings.ToLower(description) {
		case "batch completed", "leadership change", "server shutdown":
			return true, nil // ask again, perhaps another leader
		case "message size exceeds maxbytes":
			return true, errTooLarge
		case "consumer deleted":
			return true, errQueueDeleted
		}
	}
	return true, fmt.Errorf("the broker refused a request for slots: %s %s", code, description)
}

// delivered is a message that a consumer delivered.
type delivered struct {
	m *nats.Msg
	wire.Acks
}

var _ jetstream.Msg = delivered{}

func (d delivered) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := d.m.Metadata()
	if err != nil {
		return nil, err
	}
	return &jetstream.MsgMetadata{
		Sequence:     jetstream.SequencePair{Consumer: meta.Sequence.Consumer, Stream: meta.Sequence.Stream},
		NumDelivered: meta.NumDelivered, NumPending: meta.NumPending, Timestamp: d.Wire.Stamped(meta.Timestamp),
		Stream: meta.Stream, Consumer: meta.Consumer, Domain: meta.Domain,
	}, nil
}

func (d delivered) Data() []byte         { return d.m.Data }
func (d delivered) Headers() nats.Header { return d.m.Header }
func (d delivered) Subject() string      { return d.m.Subject }
func (d delivered) Reply() string        { return d.m.Reply }
