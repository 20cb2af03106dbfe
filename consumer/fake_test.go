package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

const (
	lease   = 20 * time.Second
	horizon = 24 * time.Hour
)

// fakeQueue is a work queue that behaves like the server's. If a message is not answered within
// AckWait, the queue delivers it again. An in-progress mark restarts AckWait. The queue accepts an
// ack from every consumer to which it has delivered the message.
type fakeQueue struct {
	mu      sync.Mutex
	ready   []*stored
	wake    chan struct{}
	answers []string
	asked   int // messages asked for and not delivered
	mostOut int // the largest sum of asked and out
	out     int // messages delivered and not answered, without those counted in early
	early   int // messages not answered whose handler has called returned
	failing error

	requests []time.Duration // how long each was to stay open
}

type stored struct {
	q       *fakeQueue
	message core.Message
	subject string
	data    []byte
	at      time.Time
	count   int
	gone    bool
	timer   *time.Timer
}

func newQueue() *fakeQueue { return &fakeQueue{wake: make(chan struct{}, 1)} }

func (q *fakeQueue) add(m core.Message) *stored { return q.addOn("cronce.slot.default."+m.Slot.Job, m) }

func (q *fakeQueue) addOn(subject string, m core.Message) *stored {
	return q.addDelivered(subject, m, 0)
}

// addDelivered adds a message that has been delivered count times before.
func (q *fakeQueue) addDelivered(subject string, m core.Message, count int) *stored {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &stored{q: q, message: m, subject: subject, data: []byte(`{"n":1}`), at: time.Now(), count: count}
	q.offer(s)
	return s
}

// offer makes the message ready. q.mu is held.
func (q *fakeQueue) offer(s *stored) {
	q.ready = append(q.ready, s)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// source is one worker's source of the queue.
type source struct {
	q       *fakeQueue
	message func(int, jetstream.Msg)
	ended   func(int, error)
	gone    chan struct{}
	serving sync.WaitGroup
}

func (q *fakeQueue) source() *source { return &source{q: q, gone: make(chan struct{})} }

func (s *source) Listen(_ int, message func(int, jetstream.Msg), ended func(int, error)) error {
	s.message, s.ended = message, ended
	return nil
}

func (s *source) Ask(lane, n int, d time.Duration) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.q.failing != nil {
		return s.q.failing
	}
	s.q.requests = append(s.q.requests, d)
	s.q.asked += n
	s.q.mostOut = max(s.q.mostOut, s.q.asked+s.q.out)
	s.serving.Go(func() { s.serve(lane, n, d) })
	return nil
}

func (s *source) Leave(context.Context) error {
	close(s.gone)
	s.serving.Wait()
	return nil
}

// serve delivers messages until the request is served, has expired or is cancelled.
func (s *source) serve(lane, n int, d time.Duration) {
	expires := time.After(d)
	for n > 0 {
		if m := s.q.next(); m != nil {
			n--
			s.message(lane, delivered{m, m.deliver()})
			continue
		}
		select {
		case <-s.q.wake:
			continue
		case <-time.After(50 * time.Millisecond):
			continue
		case <-s.gone:
		case <-expires:
		}
		break
	}
	s.q.mu.Lock()
	s.q.asked -= n
	s.q.mu.Unlock()
	if n > 0 {
		s.ended(lane, nil)
	}
}

func (q *fakeQueue) next() *stored {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 {
		s := q.ready[0]
		q.ready = q.ready[1:]
		if !s.gone {
			q.asked--
			q.out++
			return s
		}
	}
	return nil
}

// deliver counts the delivery and starts AckWait.
func (s *stored) deliver() int {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.count++
	s.again(lease)
	return s.count
}

// again delivers the message again after d, unless it is answered. q.mu is held.
func (s *stored) again(d time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(d, func() {
		s.q.mu.Lock()
		defer s.q.mu.Unlock()
		if !s.gone {
			s.q.offer(s)
		}
	})
}

func (s *stored) answer(what string, then func()) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.answers = append(s.q.answers, what+" "+s.message.Slot.ID())
	then()
	return nil
}

func (q *fakeQueue) said() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.answers)
}

// verdicts returns the answers without the in-progress marks.
func (q *fakeQueue) verdicts() []string {
	return slices.DeleteFunc(q.said(), func(a string) bool { return a[:3] == "wpi" })
}

// delivered is one delivery of a stored message.
type delivered struct {
	s     *stored
	count int
}

func (d delivered) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumDelivered: uint64(d.count), Timestamp: d.s.at}, nil
}
func (d delivered) Data() []byte                    { return d.s.data }
func (d delivered) Headers() nats.Header            { return d.s.message.Header() }
func (d delivered) Subject() string                 { return d.s.subject }
func (d delivered) Reply() string                   { return "" }
func (d delivered) DoubleAck(context.Context) error { return errors.New("not used") }
func (d delivered) Term() error                     { return errors.New("not used") }

func (d delivered) Ack() error {
	return d.s.answer("ack", func() {
		d.s.gone = true
		d.s.timer.Stop()
		if d.s.q.early > 0 {
			d.s.q.early--
			return
		}
		d.s.q.out--
	})
}

// returned notes that a handler has returned: its message does not count as out while it is
// recorded and acked.
func (q *fakeQueue) returned() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.out--
	q.early++
}

func (d delivered) TermWithReason(string) error {
	return d.s.answer("term", func() { d.s.gone = true; d.s.q.out--; d.s.timer.Stop() })
}

func (d delivered) Nak() error {
	return d.s.answer("nak", func() { d.s.timer.Stop(); d.s.q.out--; d.s.q.offer(d.s) })
}

func (d delivered) NakWithDelay(delay time.Duration) error {
	return d.s.answer(fmt.Sprintf("later(%v)", delay.Round(time.Millisecond)), func() { d.s.q.out--; d.s.again(delay) })
}

func (d delivered) InProgress() error {
	return d.s.answer("wpi", func() {
		if !d.s.gone {
			d.s.again(lease)
		}
	})
}

// fakeNode is an incarnation whose lease the test ends.
type fakeNode struct {
	name string
	ctx  context.Context
	lose context.CancelCauseFunc

	mu        sync.Mutex
	untrusted bool
	dead      map[string]bool
}

func newNode(name string) *fakeNode {
	n := &fakeNode{name: name, dead: map[string]bool{}}
	n.ctx, n.lose = context.WithCancelCause(context.Background())
	return n
}

func (n *fakeNode) Name() string             { return n.name }
func (n *fakeNode) Context() context.Context { return n.ctx }
func (n *fakeNode) Trusted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ctx.Err() == nil && !n.untrusted
}

func (n *fakeNode) Dead(_ context.Context, name string) (bool, time.Duration, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead[name], 3 * time.Second, nil
}

func (n *fakeNode) kill(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead[name] = true
}

// fakeRegistry holds definitions.
type fakeRegistry map[string]plans.Entry

func (r fakeRegistry) Lookup(_ context.Context, name string, _ uint64) (plans.Entry, error) {
	e, ok := r[name]
	if !ok {
		return plans.Entry{}, job.ErrNotFound
	}
	return e, nil
}

func (r fakeRegistry) Known(name string, _ uint64) *plans.Entry {
	if e, ok := r[name]; ok {
		return &e
	}
	return nil
}

func (r fakeRegistry) After(name string) []plans.Entry {
	var entries []plans.Entry
	for _, e := range r {
		if slices.Contains(e.Job.After, name) {
			entries = append(entries, e)
		}
	}
	return entries
}

// bench is one consumer with its surroundings.
type bench struct {
	*testing.T
	queue    *fakeQueue
	node     *fakeNode
	ledger   *hookedLedger
	registry fakeRegistry
	handlers map[string]job.Handler
	cfg      consumer.Config
	events   []job.Event
	mu       sync.Mutex

	chained map[string]core.Message // by message ID: the stream folds copies
	alerts  map[string]job.Event    // likewise
	copies  int
	refuse  error // of the next publish
}

func newBench(t *testing.T) *bench {
	store := memstore.New()
	b := &bench{
		T: t, queue: newQueue(), node: newNode("A"), ledger: newLedger(),
		registry: fakeRegistry{}, handlers: map[string]job.Handler{}, chained: map[string]core.Message{}, alerts: map[string]job.Event{},
	}
	b.cfg = consumer.Config{
		Namespace: "cronce", Queue: "default", Node: b.node, Ledger: b.ledger, Locks: store.Locks(), Lines: store.Lines(), Registry: b.registry,
		Sources: []consumer.Open{func(context.Context) (consumer.Source, error) { return b.queue.source(), nil }},
		Handler: func(name string) job.Handler { return b.handlers[name] },
		Publish: b.put, Alert: b.alert,
		Table: consumer.NewTable(), Now: time.Now, Lease: lease, Horizon: horizon, Concurrency: 4,
		Emit: func(e job.Event) { b.mu.Lock(); b.events = append(b.events, e); b.mu.Unlock() },
	}
	return b
}

// handle registers a job with its handler.
func (b *bench) handle(j job.Job, h job.Handler) {
	if j.Schedule == "" && len(j.After) == 0 {
		j.Schedule = "@every 1s"
	}
	if j.Overlap == "" {
		j.Overlap = job.OverlapAllow
	}
	b.registry[j.Name] = plans.Entry{Revision: 1, Time: time.Now().Add(-time.Hour), Definition: plans.Definition{Job: j.WithDefaults()}}
	b.handlers[j.Name] = h
}

// put stores a message as the stream of slots does.
func (b *bench) put(_ context.Context, queue string, m core.Message, _ []byte) error {
	if err := codec.ValidateName("queue", queue); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse; err != nil {
		b.refuse = nil
		return err
	}
	id := m.Header()[core.HeaderMsgID][0]
	if _, stored := b.chained[id]; stored {
		b.copies++
		return nil
	}
	b.chained[id] = m
	b.queue.add(m)
	return nil
}

// alert stores an alert as the stream of events does.
func (b *bench) alert(_ context.Context, e job.Event, id string, _ time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse; err != nil {
		b.refuse = nil
		return err
	}
	if _, stored := b.alerts[id]; stored {
		b.copies++
	}
	b.alerts[id] = e
	return nil
}

// publish adds a slot of the job, due now.
func (b *bench) publish(name string) job.Slot {
	s := job.NewSlot(name, time.Now())
	b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At})
	return s
}

// run starts the consumer. The returned function stops it, and returns what Run returned.
func (b *bench) run() (stop func() error) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	c := consumer.New(b.cfg)
	go func() { ended <- c.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

func (b *bench) record(s job.Slot) job.Record {
	b.Helper()
	r, _, err := b.ledger.Read(b.Context(), s)
	if err != nil {
		b.Fatalf("record of %s: %v", s, err)
	}
	return r
}

// write stores a record as another program would, and returns its revision.
func (b *bench) write(r job.Record, revision uint64) uint64 {
	b.Helper()
	revision, err := b.ledger.Write(b.Context(), r, revision)
	if err != nil {
		b.Fatal(err)
	}
	return revision
}

// hold stores a lock of the job report that only this slot is in.
func (b *bench) hold(s job.Slot, at time.Time) {
	b.Helper()
	if _, err := b.cfg.Locks.Write(b.Context(), core.Lock{Job: "report", Nonce: "x", Holders: []core.LockSlot{{Slot: s, At: at}}}, 0); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) kinds() []job.EventKind {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kinds []job.EventKind
	for _, e := range b.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// asks returns how long each request was to stay open.
func (q *fakeQueue) asks() []time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.requests)
}
