package consumer_test

import (
	"cmp"
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

	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/memstore"
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
	"losing", "late", "refusing", "land", "calm", "unacked", "acked", "slow",
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

func TestEveryOverlapPolicyIsInTheScene(t *testing.T) {
	for _, policy := range job.Overlaps() {
		if !slices.ContainsFunc(works, func(w work) bool { return cmp.Or(w.Overlap, job.OverlapAllow) == policy }) {
			t.Errorf("no job has overlap: %s", policy)
		}
	}
}

// scene plays steps with workers on one queue. It records, beside the ledger, what their
// handlers do.
type scene struct {
	t     *testing.T
	queue *fakeQueue
	store *memstore.Store

	mu      sync.Mutex
	wrong   []string
	members []*member
	born    int
	dead    map[string]time.Time // from when on a node can be proved dead
	last    map[string]time.Time // newest slot of each job
	slots   []core.Message
	running map[job.Slot]string // the node that runs each slot
	fences  map[string]bool
	starts  map[job.Slot]int
	most    map[string]int
	chained map[string]bool
	unacked bool
	slow    time.Duration
	rand    *rand.Rand
}

func newScene(t *testing.T) *scene {
	return &scene{
		t: t, queue: newQueue(), store: memstore.New(), dead: map[string]time.Time{}, last: map[string]time.Time{},
		running: map[job.Slot]string{}, fences: map[string]bool{}, starts: map[job.Slot]int{}, most: map[string]int{},
		chained: map[string]bool{}, rand: rand.New(rand.NewPCG(1, 2)),
	}
}

func (s *scene) say(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *scene) cancel(_ context.Context, node string, r core.CancelRequest) {
	slot, _ := job.ParseSlotID(r.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.node.name == node && m.cut == nil && !m.gone {
			go m.cfg.Table.Cancel(slot.Key(), r.Fence, r.Cause())
		}
	}
}

func (m *member) publish(ctx context.Context, _ string, msg core.Message, _ []byte) error {
	if err := m.reach(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if id := msg.Header()[core.HeaderMsgID][0]; !m.chained[id] {
		m.chained[id] = true
		if msg.Offer == 0 {
			m.slots = append(m.slots, msg)
		}
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
	m := core.Message{Slot: job.NewSlot(name, at), JobRevision: 1, Due: at}
	s.slots = append(s.slots, m)
	s.queue.add(m)
}

// trigger publishes a triggered run.
func (s *scene) trigger(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := core.Message{Slot: job.Slot{Job: name, Token: fmt.Sprint("t", len(s.slots))}, JobRevision: 1, Due: time.Now()}
	s.slots = append(s.slots, m)
	s.queue.add(m)
}

// leave removes a member, whose node can be proved dead from at on. It returns false if the
// member is gone already.
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

// lose cuts the member's connection. Its trust ends shortly before others can prove it dead,
// unless it is connected again.
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

// again publishes a slot's message a second time: as the sweep does for a message that seems to be
// lost, or as a copy that the stream did not drop.
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
		m.die()
		m.node.lose(errors.New("killed"))
		_ = m.stop()
	case "cut":
		m.lose()
	case "mend":
		m.mend()
	}
}

func (s *scene) weather(kind string, seed uint64) {
	fail := func(f memstore.Fault) {
		for i, b := range []interface {
			Fail(func(string) memstore.Fault)
		}{s.store.Ledger(), s.store.Locks()} {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			b.Fail(func(string) memstore.Fault {
				if r.IntN(3) == 0 {
					return f
				}
				return memstore.None
			})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case "losing":
		fail(memstore.Fault(1 + seed%2))
	case "late":
		fail(memstore.Late)
	case "refusing":
		fail(memstore.Refused)
	case "land":
		s.store.Ledger().Land()
		s.store.Locks().Land()
	case "calm":
		s.store.Ledger().Fail(nil)
		s.store.Locks().Fail(nil)
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
	for _, kind := range []string{"calm", "acked", "slow"} {
		s.weather(kind, 0)
	}
	s.start()
	for second := range 600 {
		time.Sleep(time.Second)
		if len(s.open()) == 0 {
			return
		}
		if second%60 == 59 {
			s.sweep()
		}
	}
	for _, id := range s.open() {
		s.say("%s has no outcome ten minutes after the last fault", id)
	}
}

// sweep does what the fleet's sweep does for locks: it publishes a message for a slot that holds a place and
// does not run, and for one that waits beside a free place.
func (s *scene) sweep() {
	ctx := context.Background()
	offer := func(slot job.Slot) bool {
		rec, revision, err := s.store.Ledger().Read(ctx, slot)
		if err == nil && (rec.State == job.Waiting || rec.State.Final()) {
			s.queue.add(core.CallMessages(rec, revision, "sweep", false)[0])
		}
		return err == nil && rec.State == job.Waiting
	}
	for _, w := range works {
		l, _, err := s.store.Locks().Read(ctx, w.Name)
		if err != nil {
			continue
		}
		for _, h := range l.Holders {
			offer(h.Slot)
		}
		if !l.Waiting || len(l.Holders) >= w.Places() {
			continue
		}
		entries, _ := s.store.Lines().Read(ctx, w.Name, l.Line)
		for _, e := range entries {
			if !l.Holds(e.Slot) && offer(e.Slot) {
				break
			}
		}
	}
}

// open returns the slots without an outcome.
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

// judge compares what happened with what each policy promises.
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

// Whatever happens to the workers and to their messages, every slot has one outcome in the
// end, by the policies of its job. No slot runs twice at once, and no claim starts two
// handlers.
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
