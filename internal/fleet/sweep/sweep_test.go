package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is one namespace on a real server, whose clock the test moves.
type site struct {
	*testing.T
	*kv.Store
	server      *natstest.Server
	js          jetstream.JetStream
	shift       time.Duration
	implausible bool // the clock is implausible
	sweeper     *sweep.Sweeper
	offered     []job.Slot
	rewound     []job.Event
	log         strings.Builder
	after       []plans.Entry        // the jobs that run after report and check
	late        []plans.Entry        // the jobs with on_late
	alerts      atomic.Int64         // calls of Alert
	alerting    func(job.Event)      // called before an alert is sent; it may be nil
	listing     func() error         // called before the events are listed; it may be nil
	reads       atomic.Int64         // of records
	live        []exchange.NodeEvent // other live nodes
	endFailures int                  // how many of the next writes of an end fail
}

// countedLedger counts the reads of records.
type countedLedger struct {
	*kv.Ledger
	reads *atomic.Int64
}

func (l countedLedger) Read(ctx context.Context, slot job.Slot) (job.Record, uint64, error) {
	l.reads.Add(1)
	return l.Ledger.Read(ctx, slot)
}

func newSite(t *testing.T) *site {
	t.Parallel()
	server := natstest.Run(t)
	js := server.JetStream()
	store := kvtest.Open(t, js, kv.Options{})
	s := &site{T: t, Store: store, server: server, js: js}
	s.sweeper = s.at("n5")
	s.node(exchange.Node{Name: "n5", State: exchange.NodeAlive, Producer: true, Started: time.Now()})
	j := job.Job{Name: "report", Schedule: "@hourly", Payload: []byte(`{"n":1}`)}
	if _, err := store.Jobs().Write(t.Context(), plans.Definition{Job: j.WithDefaults(), Owner: "file", Node: "x", Nonce: "x"}, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) node(n exchange.Node) {
	s.Helper()
	n.Nonce = n.Name
	if _, err := s.Nodes().Write(s.Context(), n, 0); err != nil {
		s.Fatal(err)
	}
}

func (s *site) at(node string) *sweep.Sweeper {
	return sweep.New(s.config(node))
}

func (s *site) config(node string) sweep.Config {
	return sweep.Config{
		Node: node, Ledger: countedLedger{s.Ledger(), &s.reads}, Locks: s.Locks(), Lines: s.Lines(), Slots: s.Slots(), Timers: s.Timers(), Nodes: s.Nodes(), Registry: s.Jobs(), Ends: failingEnds{s.SweepEnds(), &s.endFailures},
		After: func(name string) []plans.Entry {
			if name == "report" || name == "check" {
				return s.after
			}
			return nil
		},
		Late: func() []plans.Entry { return s.late }, Alerts: countedAlerts{s.Store, s}, AlertStates: s.AlertStates(),
		Plausible: func() error {
			if s.implausible {
				return errors.New("too far apart")
			}
			return nil
		},
		Now: func() time.Time { return time.Now().Add(s.shift) }, Lease: 20 * time.Second, Horizon: 24 * time.Hour,
		Offered: func(offered job.Slot) { s.offered = append(s.offered, offered) },
		Rewound: func(e job.Event) { s.rewound = append(s.rewound, e) }, Seen: &sweep.Seen{},
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
}

// hour is the same hour in the whole of a test.
var hour = time.Now().Truncate(time.Hour)

func slot(n int) job.Slot {
	return job.NewSlot("report", hour.Add(-time.Duration(n)*time.Hour))
}

func (s *site) record(r job.Record) uint64 {
	s.Helper()
	r.Queue, r.Nonce = "default", fmt.Sprint(r.Slot, r.State, r.Attempt, r.Node)
	_, at, _ := s.Ledger().Read(s.Context(), r.Slot)
	revision, err := s.Ledger().Write(s.Context(), r, at)
	if err != nil {
		s.Fatal(err)
	}
	return revision
}

func (s *site) publish(m core.Message) {
	s.Helper()
	if _, err := s.Slots().Publish(s.Context(), "default", m, nil); err != nil {
		s.Fatal(err)
	}
}

func (s *site) pass() {
	s.Helper()
	if err := s.sweeper.Pass(s.Context(), append(s.live, exchange.NodeEvent{Name: "alive"})); err != nil {
		s.Fatal(err)
	}
}

// messages returns the IDs and bodies of the messages in the stream.
func (s *site) messages() (ids []string) {
	s.Helper()
	for w, err := range s.Slots().Waiting(s.Context(), stream.WaitingFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		stream, err := s.js.Stream(s.Context(), "cronce_slots")
		if err != nil {
			s.Fatal(err)
		}
		m, err := stream.GetMsg(s.Context(), w.Sequence)
		if err != nil {
			s.Fatal(err)
		}
		ids = append(ids, m.Header.Get("Nats-Msg-Id")+" "+string(m.Data))
	}
	slices.Sort(ids)
	return ids
}

// purge removes all messages.
func (s *site) purge() {
	s.Helper()
	stream, err := s.js.Stream(s.Context(), "cronce_slots")
	if err == nil {
		err = stream.Purge(s.Context())
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) want(want ...string) {
	s.Helper()
	if got := s.messages(); !slices.Equal(got, want) {
		s.Errorf("the stream has\n%q, want\n%q", got, want)
	}
}

func TestASlotThatShouldHaveMovedAndHasNoMessageIsOfferedOnce(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		record job.Record
		body   string
	}{
		"its next attempt was due": {job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: now}, `{"n":1}`},
		"its owner is dead":        {job.Record{Slot: slot(1), State: job.Running, Attempt: 1, Node: "dead"}, `{"n":1}`},
		"a triggered run":          {job.Record{Slot: job.Slot{Job: "report", Token: "k"}, State: job.Retrying, RetryAt: now, Payload: []byte(`{"own":1}`)}, `{"own":1}`},
		"its job is gone":          {job.Record{Slot: job.NewSlot("gone", now), State: job.Retrying, RetryAt: now}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			revision := s.record(c.record)
			s.pass()
			s.want() // not yet
			s.shift = time.Minute
			s.pass()
			offered := fmt.Sprintf("%s/r%d %s", c.record.Slot.ID(), revision+2, c.body)
			s.want(offered)
			if !slices.Equal(s.offered, []job.Slot{c.record.Slot}) {
				t.Errorf("Offered was called with %v", s.offered)
			}
			s.pass()
			s.want(offered)
		})
	}
}

func TestASlotThatMovesOrHasAMessageIsNotOffered(t *testing.T) {
	now := time.Now()
	for name, r := range map[string]job.Record{
		"its next attempt is far away": {Slot: slot(1), State: job.Retrying, RetryAt: now.Add(time.Hour)},
		"it has its outcome":           {Slot: slot(1), State: job.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.record(r)
			s.shift = 5 * time.Minute
			s.pass()
			s.want()
		})
	}
	t.Run("a live node has run it for a short time", func(t *testing.T) {
		s := newSite(t)
		s.record(job.Record{Slot: slot(1), State: job.Running, Node: "alive"})
		s.shift = 4 * time.Minute
		s.pass()
		s.want()
	})
	t.Run("a live node runs it, and it has a message", func(t *testing.T) {
		s := newSite(t)
		s.record(job.Record{Slot: slot(1), State: job.Running, Node: "alive"})
		s.publish(core.Message{Slot: slot(1)})
		s.shift = time.Hour
		s.pass()
		s.want(slot(1).ID() + " ")
	})
	t.Run("its message waits", func(t *testing.T) {
		s := newSite(t)
		s.record(job.Record{Slot: slot(1), State: job.Retrying, RetryAt: now})
		s.publish(core.Message{Slot: slot(1)})
		s.shift = 5 * time.Minute
		s.pass()
		s.want(slot(1).ID() + " ")
	})
	t.Run("it has ended since", func(t *testing.T) {
		s := newSite(t)
		s.record(job.Record{Slot: slot(1), State: job.Retrying, RetryAt: now})
		s.pass()
		s.record(job.Record{Slot: slot(1), State: job.Succeeded})
		s.shift = 5 * time.Minute
		s.pass()
		s.want()
	})
}

// Invariant 10: the message of a running slot was purged. Its owner lives, but may have forgotten the
// slot. Only a worker that gets a message asks the owner.
func TestARunningSlotOfALiveNodeIsOfferedWhenItsMessageIsLost(t *testing.T) {
	s := newSite(t)
	revision := s.record(job.Record{Slot: slot(1), State: job.Running, Attempt: 1, Node: "alive"})
	s.shift = 6 * time.Minute
	s.pass()
	offered := fmt.Sprintf(`%s/r%d {"n":1}`, slot(1).ID(), revision+2)
	s.want(offered)
	s.shift = time.Hour
	s.pass()
	s.want(offered)
}

// Each time costs a listing of all messages.
func TestRunningSlotsOfLiveNodesAreSuspectedEveryFiveMinutes(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(1), State: job.Running, Attempt: 1, Node: "alive"})
	s.publish(core.Message{Slot: slot(1)})
	s.shift = time.Hour
	s.pass()
	s.purge()
	s.shift += 4 * time.Minute
	s.pass()
	s.want()
	s.shift += 2 * time.Minute
	s.pass()
	if got := s.messages(); len(got) != 1 {
		t.Errorf("after five minutes the stream has %q, want the slot", got)
	}
}

// The producer has published the slot, and the stream lost it before a worker got it.
func TestASlotWithoutARecordIsOfferedWhenItsMessageIsLost(t *testing.T) {
	s := newSite(t)
	if err := s.sweeper.Turn(t.Context()); err != nil { // from here on this node sweeps
		t.Fatal(err)
	}
	lost, waits, recorded, missed := slot(0), slot(1), slot(2), slot(3)
	now := time.Now()
	s.sweeper.Published("default", core.Message{Slot: lost, Due: now, JobRevision: 1, Node: "p"})
	s.sweeper.Published("default", core.Message{Slot: waits, Due: now})
	s.sweeper.Published("default", core.Message{Slot: recorded, Due: now})
	s.sweeper.Published("default", core.Message{Slot: missed, Due: now, Missed: 1})
	s.publish(core.Message{Slot: waits})
	s.record(job.Record{Slot: recorded, State: job.Succeeded})
	s.shift = time.Minute
	s.pass()
	s.want(slices.Sorted(slices.Values([]string{waits.ID() + " ", lost.ID() + `/r2 {"n":1}`}))...)
}

// The whole of a split slot ended before a worker had claimed one of its shards, or the slot is split
// otherwise: then the shards get no records.
func TestAShardThatNeedsNoRecordIsNotOffered(t *testing.T) {
	for name, whole := range map[string]job.Record{
		"the slot ended as a whole": {State: job.Skipped}, "it is split otherwise": {State: job.Running, Shards: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if err := s.sweeper.Turn(t.Context()); err != nil { // from here on this node sweeps
				t.Fatal(err)
			}
			whole.Slot = slot(1)
			s.record(whole)
			ended, lost := slot(1).WithShard(1, 3), slot(2).WithShard(2, 3)
			for _, shard := range []job.Slot{ended, lost} {
				s.sweeper.Published("default", core.Message{Slot: shard, Due: time.Now()})
			}
			s.shift = time.Minute
			s.pass()
			if !slices.Contains(s.offered, lost) || slices.Contains(s.offered, ended) {
				t.Errorf("offered %v, want the lost shard %s, and not %s", s.offered, lost, ended)
			}
		})
	}
}

func TestTheOldestLiveProducerSweeps(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(1), State: job.Retrying, RetryAt: time.Now().Add(-time.Hour)})
	started := time.Now().Add(-time.Hour)
	s.node(exchange.Node{Name: "n1", State: exchange.NodeStopped, Producer: true, Started: started})
	s.node(exchange.Node{Name: "n2", State: exchange.NodeFenced, Producer: true, Started: started})
	s.node(exchange.Node{Name: "n3", State: exchange.NodeAlive, Worker: true, Started: started})
	s.node(exchange.Node{Name: "n9", State: exchange.NodeAlive, Producer: true, Started: started.Add(time.Minute)})
	s.node(exchange.Node{Name: "n8", State: exchange.NodeAlive, Producer: true, Started: started, ClockOffset: 2 * time.Minute}) // its clock is slow
	run := func(sweeper *sweep.Sweeper) (sweeps bool) {
		if err := sweeper.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(s.messages()) > 0
	}
	if run(s.at("n5")) {
		t.Error("the younger of two swept")
	}
	if !run(s.at("n9")) {
		t.Error("the older of two did not sweep")
	}
}

// countedNodes counts the listings of nodes.
type countedNodes struct {
	*kv.Nodes
	n *int
}

func (l countedNodes) List(ctx context.Context) ([]exchange.NodeEvent, error) {
	*l.n++
	return l.Nodes.List(ctx)
}

// Each of hundreds of nodes would read the records of all others twice a minute.
func TestANodeListsTheOthersRarelyWhileAnOlderOneSweeps(t *testing.T) {
	s := newSite(t)
	s.node(exchange.Node{Name: "n1", State: exchange.NodeAlive, Producer: true, Started: time.Now().Add(-time.Hour)})
	lists := 0
	cfg := s.config("n5")
	cfg.Nodes = countedNodes{s.Nodes(), &lists}
	younger, older := sweep.New(cfg), s.at("n1")
	turn := func(sweeper *sweep.Sweeper, what string, want int) {
		t.Helper()
		if err := sweeper.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lists != want {
			t.Errorf("%s: %d listings in all, want %d", what, lists, want)
		}
	}
	turn(younger, "no node has swept", 1)
	turn(older, "the older one sweeps", 1)
	turn(younger, "the older one has swept", 1)
	s.shift = -sweep.Unlisted - time.Second
	turn(younger, "the older one has swept at another time", 2)
	s.shift = 0
	turn(older, "the older one sweeps again", 2)
	turn(younger, "the end may be forged", 3)
	turn(younger, "the older one has swept", 3)
	s.shift = time.Minute
	turn(younger, "the older one should have swept again", 4)
	s.shift = 0
	turn(older, "the older one sweeps again", 4)
	s.shift = 2 * time.Minute
	turn(younger, "the older one is silent, and the younger one sweeps", 5)
	s.shift = 0
	turn(younger, "it is the one that sweeps", 6)
}
