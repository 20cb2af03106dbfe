package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/memory"
	"github.com/cronce-io/cronce/job"
)

// step is one event in the life of a queue's workers, after a pause.
type step struct {
	Pause time.Duration
	Kind  string
	Arg   int
}

var stepKinds = []string{
	"publish", "publish", "publish", "publish", "burst", "trigger", "trigger", "again", "again", "start", "stop", "crash", "cut", "mend",
	"losing", "late", "refusing", "land", "calm", "deaf", "hearing", "unacked", "acked", "slow",
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond,
			rapid.SampledFrom(stepKinds).Draw(t, "kind"),
			rapid.IntRange(0, 1000).Draw(t, "arg"),
		}
	}), 1, 40).Draw(t, "steps")
}

// work is a job of the scene: how long its handler takes, and how many attempts of
// each slot fail.
type work struct {
	job.Job
	takes time.Duration
	fails int
}

var works = []work{
	{job.Job{Name: "allow"}, 200 * time.Millisecond, 0},
	{job.Job{Name: "long"}, 45 * time.Second, 0},
	{job.Job{Name: "flaky", Retry: job.Retry{Attempts: 1000, Backoff: time.Second, MaxBackoff: 5 * time.Second}}, 300 * time.Millisecond, 2},
	{job.Job{Name: "single", Retry: job.Retry{Attempts: 1}}, 500 * time.Millisecond, 0},
	{job.Job{Name: "skip", Overlap: job.OverlapSkip}, 3 * time.Second, 0},
	{job.Job{Name: "queue", Overlap: job.OverlapQueue}, 1500 * time.Millisecond, 0},
	{job.Job{Name: "latest", Overlap: job.OverlapLatest}, 2 * time.Second, 0},
	{job.Job{Name: "replace", Overlap: job.OverlapReplace}, 4 * time.Second, 0},
	{job.Job{Name: "pair", Overlap: job.OverlapQueue, Concurrency: 2}, 2500 * time.Millisecond, 0},
	{job.Job{Name: "again", Overlap: job.OverlapQueue, Retry: job.Retry{Attempts: 1000, Backoff: 2 * time.Second, MaxBackoff: 5 * time.Second}}, time.Second, 1},
	{job.Job{Name: "after", After: []string{"allow"}}, 100 * time.Millisecond, 0},
}

// scene plays steps with workers on one queue, and writes down, beside the ledger,
// what their handlers do.
type scene struct {
	t     *testing.T
	queue *fakeQueue
	store *memory.Store

	mu      sync.Mutex
	wrong   []string
	members []*member
	born    int
	dead    map[string]time.Time // from when on a node can be proved dead
	last    map[string]time.Time // newest slot of each job
	slots   []job.Message
	running map[job.Slot]string // who runs what
	fences  map[string]bool
	starts  map[job.Slot]int
	most    map[string]int
	chained map[string]bool
	deaf    bool
	unacked bool
	slow    time.Duration
	rand    *rand.Rand
	calls   map[*member]func(job.Slot)
}

func newScene(t *testing.T) *scene {
	return &scene{
		t: t, queue: newQueue(), store: memory.New(), dead: map[string]time.Time{}, last: map[string]time.Time{},
		running: map[job.Slot]string{}, fences: map[string]bool{}, starts: map[job.Slot]int{}, most: map[string]int{},
		chained: map[string]bool{}, rand: rand.New(rand.NewPCG(1, 2)), calls: map[*member]func(job.Slot){},
	}
}

func (s *scene) say(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// member is one process.
type member struct {
	*scene
	node *fakeNode
	cfg  consumer.Config
	stop func() error
	cut  chan struct{} // closed when its connection is mended; nil: it has one
	gone bool          // killed: nothing of it happens any more
}

func (s *scene) start() {
	if len(s.present()) >= 4 {
		return
	}
	s.born++
	m := &member{scene: s, node: newNode(fmt.Sprint("n", s.born))}
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
		registry[j.Name] = job.Entry{Revision: 1, Time: time.Now().Add(-time.Hour), Definition: job.Definition{Job: j.WithDefaults()}}
		handlers[j.Name] = func(ctx context.Context, run job.Run) error { return m.work(ctx, w, run) }
	}
	m.cfg = consumer.Config{
		Namespace: "cronce", Queue: "default", Node: mortal{m.node, s}, Ledger: wiredLedger{s.store.Ledger(), m}, Locks: wiredLocks{s.store.Locks(), m},
		Registry: registry, Handler: func(name string) job.Handler { return handlers[name] },
		Sources: []consumer.Open{func(context.Context) (consumer.Source, error) { return wiredSource{s.queue.source(), m}, nil }},
		Publish: m.publish, Alert: func(context.Context, job.Event, string) error { return nil },
		Table: consumer.NewTable(), Now: time.Now, Lease: lease, Horizon: horizon, Concurrency: 4, Grace: time.Second,
		Wake: s.wake, Listen: func(_ string, woken func(job.Slot)) func() { s.hear(m, woken); return func() {} },
		Cancel: s.cancel,
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

// reach waits for a connection, and takes the time of a round trip.
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
	*memory.Ledger
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

type wiredLocks struct {
	*memory.Locks
	m *member
}

func (l wiredLocks) Read(ctx context.Context, name string) (job.Lock, uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return job.Lock{}, 0, err
	}
	return l.Locks.Read(ctx, name)
}

func (l wiredLocks) Write(ctx context.Context, lock job.Lock, revision uint64) (uint64, error) {
	if err := l.m.reach(ctx); err != nil {
		return 0, err
	}
	return l.Locks.Write(ctx, lock, revision)
}

// wiredSource loses what comes for a process that is not there.
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

// wiredMsg loses the answers of a process that is not there, and now and then others.
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

func (s *scene) wake(slot job.Slot) {
	s.mu.Lock()
	var calls []func(job.Slot)
	if !s.deaf {
		for m, woken := range s.calls {
			if m.cut == nil && !m.gone {
				calls = append(calls, woken)
			}
		}
	}
	s.mu.Unlock()
	for _, woken := range calls {
		woken(slot)
	}
}

func (s *scene) hear(m *member, woken func(job.Slot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[m] = woken
}

func (s *scene) cancel(_ context.Context, node string, r job.CancelRequest) {
	slot, _ := job.ParseSlotID(r.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.node.name == node && m.cut == nil && !m.gone {
			go m.cfg.Table.Cancel(slot.Key(), r.Fence, r.Cause())
		}
	}
}

func (m *member) publish(ctx context.Context, _ string, msg job.Message, _ []byte) error {
	if err := m.reach(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if id := msg.Slot.ID(); !m.chained[id] {
		m.chained[id] = true
		m.slots = append(m.slots, msg)
		m.queue.add(msg)
	}
	return nil
}

func (s *scene) fall(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.last[name].Add(time.Second)
	if now := time.Now().Truncate(time.Second); now.After(at) {
		at = now
	}
	s.last[name] = at
	m := job.Message{Slot: job.NewSlot(name, at), JobRevision: 1, Due: at}
	s.slots = append(s.slots, m)
	s.queue.add(m)
}

// trigger asks for a run of its own.
func (s *scene) trigger(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := job.Message{Slot: job.Slot{Job: name, Token: fmt.Sprint("t", len(s.slots))}, JobRevision: 1, Due: time.Now()}
	s.slots = append(s.slots, m)
	s.queue.add(m)
}

// leave takes a member off the scene, whose node can be proved dead from at on.
// It is false when it is not there any more.
func (m *member) leave(at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.members, m)
	if i < 0 {
		return false
	}
	m.members = slices.Delete(m.members, i, i+1)
	m.dead[m.node.name] = at
	return true
}

func (s *scene) present() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.members)
}

// lose keeps the member from its broker; its trust is over shortly before others can
// prove it dead, unless it comes back.
func (m *member) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		return
	}
	cut := make(chan struct{})
	m.cut = cut
	over := time.Now().Add(lease - time.Second)
	go func() {
		select {
		case <-cut:
			return
		case <-time.After(time.Until(over)):
		}
		if m.leave(over.Add(time.Second)) {
			m.node.lose(job.ErrLeaseLost)
			_ = m.stop()
			m.mend()
		}
	}()
}

func (m *member) mend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut != nil {
		close(m.cut)
		m.cut = nil
	}
}

func (s *scene) play(st step) {
	time.Sleep(st.Pause)
	pick := func(n int) int { return st.Arg % max(n, 1) }
	switch st.Kind {
	case "publish":
		s.fall(works[pick(len(works)-1)].Name)
	case "burst":
		for range 3 {
			s.fall(works[pick(len(works)-1)].Name)
		}
	case "trigger":
		s.trigger(works[pick(len(works)-1)].Name)
	case "again":
		s.again(st.Arg)
	case "start":
		s.start()
	case "stop", "crash", "cut", "mend":
		if there := s.present(); len(there) > 0 {
			there[pick(len(there))].harm(st.Kind)
		}
	default:
		s.weather(st.Kind, uint64(st.Arg))
	}
}

// again has a slot's message come a second time: as the fleet offers it when it
// seems to be lost, or as a copy that the stream did not fold.
func (s *scene) again(arg int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slots) == 0 {
		return
	}
	m := s.slots[arg%len(s.slots)]
	if arg%3 > 0 {
		m.Offer = 1 + arg%2
	}
	s.queue.add(m)
}

func (m *member) harm(kind string) {
	switch kind {
	case "stop":
		m.mend()
		m.leave(time.Now().Add(10 * time.Second)) // its handlers have a grace of one, and five to linger
		go func() { _ = m.stop() }()
	case "crash":
		m.leave(time.Now().Add(lease))
		m.mu.Lock()
		m.gone = true
		m.mu.Unlock()
		m.node.lose(errors.New("killed"))
		_ = m.stop()
	case "cut":
		m.lose()
	case "mend":
		m.mend()
	}
}

func (s *scene) weather(kind string, seed uint64) {
	fail := func(f memory.Fault) {
		for i, b := range []interface {
			Fail(func(string) memory.Fault)
		}{s.store.Ledger(), s.store.Locks()} {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			b.Fail(func(string) memory.Fault {
				if r.IntN(3) == 0 {
					return f
				}
				return memory.None
			})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case "losing":
		fail(memory.Fault(1 + seed%2))
	case "late":
		fail(memory.Late)
	case "refusing":
		fail(memory.Refused)
	case "land":
		s.store.Ledger().Land()
		s.store.Locks().Land()
	case "calm":
		s.store.Ledger().Fail(nil)
		s.store.Locks().Fail(nil)
	case "deaf", "hearing":
		s.deaf = kind == "deaf"
	case "unacked", "acked":
		s.unacked = kind == "unacked"
	case "slow":
		s.slow = time.Duration(seed%400) * time.Millisecond
	}
}

// settle ends all faults and waits until every slot has its outcome.
func (s *scene) settle() {
	for _, m := range s.present() {
		m.mend()
	}
	for _, kind := range []string{"calm", "hearing", "acked", "slow"} {
		s.weather(kind, 0)
	}
	s.start()
	for range 600 {
		time.Sleep(time.Second)
		if len(s.open()) == 0 {
			return
		}
	}
	for _, id := range s.open() {
		s.say("%s has no outcome ten minutes after the last fault", id)
	}
}

// open are the slots without an outcome.
func (s *scene) open() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.slots {
		if rec, _, err := s.store.Ledger().Read(context.Background(), m.Slot); err != nil || !rec.State.Final() {
			ids = append(ids, fmt.Sprintf("%s (%s by %s)", m.Slot.ID(), rec.State, rec.Node))
		}
	}
	return ids
}

// judge holds what happened against what each policy promises.
func (s *scene) judge() {
	for _, m := range s.slots {
		rec, _, err := s.store.Ledger().Read(context.Background(), m.Slot)
		if err != nil {
			continue
		}
		want := []job.State{job.Succeeded}
		onTime := m.Slot.Token == ""
		switch m.Slot.Job {
		case "single":
			want = append(want, job.Failed)
		case "skip", "latest":
			if onTime {
				want = append(want, job.Skipped)
			}
		case "replace":
			if onTime {
				want = append(want, job.Cancelled, job.Skipped)
			}
		}
		if !slices.Contains(want, rec.State) {
			s.say("%s is %s: %s", m.Slot.ID(), rec.State, rec.Error)
		}
		if m.Slot.Job == "allow" && onTime && rec.State == job.Succeeded && !s.chained[job.NewSlot("after", m.Slot.At).ID()] {
			s.say("nothing follows from %s", m.Slot.ID())
		}
	}
	for _, w := range works {
		most := 1
		switch w.Name {
		case "pair":
			most = 2
		case "allow", "long", "flaky", "single", "after":
			continue
		}
		if n := s.most[w.Name]; n > most {
			s.say("%d slots of %s ran at once", n, w.Name)
		}
	}
}

// Whatever becomes of the workers and of what they say to the broker, every slot has
// one outcome in the end, under the rules of its job; no slot runs twice at once, and
// no claim starts two handlers.
func TestEverySlotEndsOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.start()
			for _, st := range steps {
				s.play(st)
			}
			s.settle()
			for _, w := range works[:len(works)-1] {
				s.fall(w.Name) // nothing is in anybody's way any more
			}
			s.settle()
			for _, m := range s.present() {
				m.leave(time.Now())
				_ = m.stop()
			}
			time.Sleep(time.Minute)
			s.judge()
			wrong = s.wrong
		})
		if len(wrong) > 0 {
			rt.Fatalf("%d wrong, among them:\n%s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "\n"))
		}
	})
}
