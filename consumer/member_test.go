package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// member is one process.
type member struct {
	*scene
	node *fakeNode
	cfg  consumer.Config
	stop func() error
	die  context.CancelFunc // ends the process's life
	cut  chan struct{}      // closed when its connection is restored; nil: it is connected
	gone bool               // the process was killed: it does nothing any more
}

func (s *scene) start() {
	if len(s.present()) >= 4 {
		return
	}
	s.born++
	m := &member{scene: s, node: newNode(fmt.Sprint("n", s.born))}
	life, die := context.WithCancel(context.Background())
	m.die = die
	registry, handlers := fakeRegistry{}, map[string]job.Handler{}
	for _, w := range works {
		j := w.Job
		if j.Schedule == "" && len(j.After) == 0 {
			j.Schedule = "@every 1s"
		}
		if j.Overlap == "" {
			j.Overlap = job.OverlapAllow
		}
		if j.Retry.Attempts == 0 {
			j.Retry = job.Retry{Attempts: 1000, Backoff: time.Second, MaxBackoff: 5 * time.Second}
		}
		registry[j.Name] = plans.Entry{Revision: 1, Time: time.Now().Add(-time.Hour), Definition: plans.Definition{Job: j.WithDefaults()}}
		handlers[j.Name] = func(ctx context.Context, run job.Run) error { return m.work(ctx, w, run) }
	}
	m.cfg = consumer.Config{
		Namespace: "cronce", Queue: "default", Node: mortal{m.node, s}, Ledger: wiredLedger{s.store.Ledger(), m}, Locks: wiredLocks{s.store.Locks(), m}, Lines: wiredLines{s.store.Lines(), m},
		Registry: registry, Handler: func(name string) job.Handler { return handlers[name] },
		Sources: []consumer.Open{func(context.Context) (consumer.Source, error) { return wiredSource{s.queue.source(), m}, nil }},
		Publish: m.publish, Alert: func(context.Context, job.Event, string, time.Time) error { return nil },
		Table: consumer.NewTable(), Now: time.Now, Lease: lease, Horizon: horizon, Concurrency: 4, Grace: time.Second,
		Cancel: s.cancel, Life: life,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	c := consumer.New(m.cfg)
	go func() { ended <- c.Run(ctx) }()
	m.stop = func() error { cancel(); return <-ended }
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
}

// work is the handler of all jobs.
func (m *member) work(ctx context.Context, w work, run job.Run) (err error) {
	m.began(run)
	defer func() { m.returned(run) }()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(w.takes):
	}
	if run.Attempt <= w.fails {
		return errors.New("not yet")
	}
	return nil
}

func (m *member) began(run job.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fence := fmt.Sprint(run.Slot.ID(), " ", run.Fence)
	if m.fences[fence] {
		m.say("%s started two handlers", fence)
	}
	m.fences[fence] = true
	if by, ok := m.running[run.Slot]; ok {
		m.say("%s starts on %s while it runs on %s", fence, m.node.name, by)
	}
	m.running[run.Slot] = m.node.name
	if m.starts[run.Slot]++; run.Slot.Job == "single" && m.starts[run.Slot] > 1 {
		m.say("%s, of one attempt, starts again", run.Slot.ID())
	}
	if rec, _, err := m.store.Ledger().Read(context.Background(), run.Slot); err != nil || rec.State.Final() {
		m.say("%s starts although it is %s (%v)", fence, rec.State, err)
	}
	beside := 0
	for other := range m.running {
		if other.Job == run.Slot.Job {
			beside++
		}
	}
	m.most[run.Slot.Job] = max(m.most[run.Slot.Job], beside)
}

func (m *member) returned(run job.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, run.Slot)
}

// reach waits until the process is connected, and then for a round trip.
func (m *member) reach(ctx context.Context) error {
	m.mu.Lock()
	cut, gone := m.cut, m.gone
	trip := time.Duration(1+m.rand.IntN(4000))*time.Microsecond + m.slow*time.Duration(m.rand.IntN(3))
	m.mu.Unlock()
	if gone {
		return fmt.Errorf("%w: killed", job.ErrUnknown)
	}
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", job.ErrUnknown, context.Cause(ctx))
		}
	}
	time.Sleep(trip)
	return nil
}

func (m *member) away() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone || m.cut != nil
}

type wiredLedger struct {
	*memstore.Ledger
	m *member
}

func (l wiredLedger) Read(ctx context.Context, s job.Slot) (job.Record, uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return job.Record{}, 0, err
	}
	return l.Ledger.Read(ctx, s)
}

func (l wiredLedger) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return 0, err
	}
	return l.Ledger.Write(ctx, r, revision)
}

func (l wiredLedger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	go func() { answered(l.Write(ctx, r, revision)) }()
}

type wiredLocks struct {
	*memstore.Locks
	m *member
}

func (l wiredLocks) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return core.Lock{}, 0, err
	}
	return l.Locks.Read(ctx, name)
}

func (l wiredLocks) Write(ctx context.Context, lock core.Lock, revision uint64) (uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return 0, err
	}
	return l.Locks.Write(ctx, lock, revision)
}

type wiredLines struct {
	*memstore.Lines
	m *member
}

func (l wiredLines) Put(ctx context.Context, e core.Entry, revision uint64) (uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return 0, err
	}
	return l.Lines.Put(ctx, e, revision)
}

func (l wiredLines) Read(ctx context.Context, name string, from uint64) ([]core.Entry, error) {
	if err := l.m.reach(ctx); err != nil {
		return nil, err
	}
	return l.Lines.Read(ctx, name, from)
}

// wiredSource loses the messages for a process without a connection.
type wiredSource struct {
	*source
	m *member
}

func (s wiredSource) Listen(lanes int, message func(int, jetstream.Msg), ended func(int, error)) error {
	return s.source.Listen(lanes, func(lane int, msg jetstream.Msg) {
		if !s.m.away() {
			message(lane, wiredMsg{msg, s.m})
		}
	}, ended)
}

// wiredMsg loses the answers of a process without a connection. While unacked is set, it loses half of
// all answers.
type wiredMsg struct {
	jetstream.Msg
	m *member
}

func (w wiredMsg) lost() bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.m.gone || w.m.cut != nil || w.m.unacked && w.m.rand.IntN(2) == 0
}

func (w wiredMsg) Ack() error {
	if w.lost() {
		return nil
	}
	return w.Msg.Ack()
}

func (w wiredMsg) Nak() error {
	if w.lost() {
		return nil
	}
	return w.Msg.Nak()
}

func (w wiredMsg) NakWithDelay(d time.Duration) error {
	if w.lost() {
		return nil
	}
	return w.Msg.NakWithDelay(d)
}

func (w wiredMsg) InProgress() error {
	if w.lost() {
		return nil
	}
	return w.Msg.InProgress()
}

// mortal is a node that others can prove dead when its lease is over.
type mortal struct {
	*fakeNode
	s *scene
}

func (n mortal) Dead(_ context.Context, name string) (bool, time.Duration, error) {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	at, known := n.s.dead[name]
	return known && !time.Now().Before(at), 3 * time.Second, nil
}
