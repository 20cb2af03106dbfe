package sweep_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// end returns what the last complete sweep has stored.
func (s *site) end() exchange.SweepEnd {
	s.Helper()
	end, err := s.SweepEnds().Read(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return end.SweepEnd
}

func (s *site) turn(sweeper *sweep.Sweeper) {
	s.Helper()
	if err := sweeper.Turn(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// lasting returns the sweeper of a producer that is older than the others and has a long lease.
func (s *site) lasting(node string) *sweep.Sweeper {
	s.Helper()
	s.node(exchange.Node{Name: node, State: exchange.NodeAlive, Producer: true, Started: time.Now().Add(-time.Hour), Lease: 24 * time.Hour})
	return s.at(node)
}

// spoil overwrites a slot's record with a value that no program can read.
func (s *site) spoil(slot job.Slot) {
	s.Helper()
	if _, err := s.js.Publish(s.Context(), "$KV.cronce_ledger."+slot.Key(), []byte(`{"v":1,"state":`)); err != nil {
		s.Fatal(err)
	}
}

func TestAnUnreadableRecordIsSkippedAndReported(t *testing.T) {
	s := newSite(t)
	bad, lost := slot(1), slot(2)
	s.spoil(bad)
	s.record(job.Record{Slot: lost, State: job.Retrying, RetryAt: time.Now()})
	s.shift = time.Minute
	sweeper := s.lasting("n0")
	for turn := range 2 {
		s.reads.Store(0)
		s.turn(sweeper)
		if turn > 0 && s.reads.Load() > 1 { // the newest write that was seen
			t.Errorf("%d records were read, although nothing has changed", s.reads.Load())
		}
		if len(s.offered) != 1 || s.offered[0] != lost {
			t.Errorf("offered %v, want %s", s.offered, lost)
		}
		end := s.end()
		if len(end.Skipped) != 1 || !strings.Contains(end.Skipped[0].What, bad.ID()) || !strings.Contains(end.Skipped[0].Why, "invalid") || end.Node != "n0" {
			t.Errorf("the stored end is %+v, want it to name %s", end, bad)
		}
	}
	s.record(job.Record{Slot: bad, State: job.Succeeded}) // it can be read again
	s.turn(sweeper)
	if end := s.end(); len(end.Skipped) > 0 {
		t.Errorf("the stored end still names %+v", end.Skipped)
	}
}

func TestAStrandedMessageWithAnUnreadableRecordIsSkipped(t *testing.T) {
	s := newSite(t)
	bad, lost := slot(1), slot(2)
	s.publish(core.Message{Slot: bad})
	s.publish(core.Message{Slot: lost})
	natstest.Strand(t, s.js, "cronce")
	s.spoil(bad)
	s.shift = 5 * time.Minute
	s.pass()
	if len(s.offered) != 1 || s.offered[0] != lost {
		t.Errorf("offered %v, want %s", s.offered, lost)
	}
}

// A login that may write the nodes bucket can invent a producer that is older than all.
func TestAProducerSweepsWhenTheOldestDoesNot(t *testing.T) {
	s := newSite(t)
	invented := exchange.Node{Name: "a-1-1-x", State: exchange.NodeAlive, Producer: true, Lease: 24 * time.Hour, Started: time.Unix(0, 0)}
	s.node(invented)
	lost := slot(1)
	s.record(job.Record{Slot: lost, State: job.Retrying, RetryAt: time.Now()})
	other := s.at("n6")
	for ; s.shift < 90*time.Second; s.shift += 30 * time.Second {
		s.turn(s.sweeper)
	}
	if len(s.offered) != 0 {
		t.Errorf("a younger producer swept before a sweep was overdue")
	}
	s.shift = 100 * time.Second
	s.turn(s.sweeper)
	if len(s.offered) != 1 {
		t.Fatalf("offered %v, want %s", s.offered, lost)
	}
	first := s.end()
	if first.Node != "n5" {
		t.Fatalf("%q swept, want n5", first.Node)
	}
	// The producer that stands in goes on, and the others do not sweep.
	s.turn(other)
	s.turn(s.sweeper)
	if end := s.end(); end.Node != "n5" || end.Nonce == first.Nonce {
		t.Errorf("then %q swept, want n5 again", end.Node)
	}
}

// A pass of the oldest may take minutes because there are many messages. If all producers listed them
// too, it would take longer.
func TestProducersStandInOneAfterTheOther(t *testing.T) {
	s := newSite(t)
	alive := func(name string, started time.Time) {
		s.node(exchange.Node{Name: name, State: exchange.NodeAlive, Producer: true, Started: started, Lease: 24 * time.Hour})
	}
	alive("n0", time.Unix(0, 0))
	alive("n1", time.Now().Add(-time.Hour))
	second := s.at("n1")
	var younger []*sweep.Sweeper
	for n := range 20 {
		name := fmt.Sprint("y", n)
		alive(name, time.Now().Add(time.Duration(n)*time.Second))
		younger = append(younger, s.at(name))
	}
	sweeps := func(sweeper *sweep.Sweeper) bool {
		before, _ := s.SweepEnds().Read(s.Context())
		s.turn(sweeper)
		after, _ := s.SweepEnds().Read(s.Context())
		return after.Revision != before.Revision
	}
	for _, sweeper := range append(younger, second) {
		if sweeps(sweeper) {
			t.Fatal("a producer swept at once, although it is not the oldest")
		}
	}
	s.shift = 100 * time.Second
	for n, sweeper := range younger {
		if sweeps(sweeper) {
			t.Errorf("younger producer %d sweeps together with the second oldest", n)
		}
	}
	if !sweeps(second) {
		t.Error("the second oldest does not sweep")
	}
	s.shift = 16 * time.Minute
	if !sweeps(younger[19]) {
		t.Error("the youngest does not sweep, although all others are stuck")
	}
}

func TestASilentNodeWithAnUnreadableRecordIsNotAlive(t *testing.T) {
	s := newSite(t)
	if _, err := s.js.Publish(t.Context(), "$KV.cronce_nodes.broken", []byte("{")); err != nil {
		t.Fatal(err)
	}
	lost := slot(1)
	s.record(job.Record{Slot: lost, State: job.Running, Node: "broken"})
	s.shift = time.Minute
	s.turn(s.lasting("n0"))
	if len(s.offered) != 1 || s.offered[0] != lost {
		t.Errorf("offered %v, want %s, whose owner is silent", s.offered, lost)
	}
}

func TestARewoundLedgerIsReportedOnce(t *testing.T) {
	old := []job.Record{{Slot: slot(3), State: job.Succeeded}, {Slot: slot(2), State: job.Succeeded}}
	for name, c := range map[string]struct {
		lose func(s *site)
		want bool
	}{
		"nothing was lost":       {func(s *site) {}, false},
		"it was created anew":    {func(s *site) { s.remake(0) }, true},
		"an old copy is there":   {func(s *site) { s.remake(0, old...) }, true},
		"its slots run again":    {func(s *site) { s.remake(0, old[0], job.Record{Slot: slot(1), State: job.Running, Node: "n5"}) }, true},
		"it was written since":   {func(s *site) { s.record(job.Record{Slot: slot(1), State: job.Failed, Attempt: 2}) }, false},
		"it is past its age":     {func(s *site) { s.remake(0); s.shift = 25 * time.Hour }, false},
		"the record is not read": {func(s *site) { s.spoil(slot(1)) }, false},
		"the record was removed": {func(s *site) { s.remove(slot(1)) }, false},
		"its stream was purged":  {func(s *site) { s.remake(100) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, r := range old {
				s.record(r)
			}
			s.record(job.Record{Slot: slot(1), State: job.Running, Node: "n5"})
			at := s.record(job.Record{Slot: slot(1), State: job.Succeeded})
			s.turn(s.sweeper)
			if newest := s.end().Newest; newest.Revision != at || newest.Slot != slot(1).ID() {
				t.Fatalf("the newest write it saw is %+v, want %s at %d", newest, slot(1), at)
			}
			c.lose(s)
			s.node(exchange.Node{Name: "n6", State: exchange.NodeAlive, Producer: true, Started: time.Now()})
			for range 2 { // another node, which has read what the first one stored, and the first one
				s.turn(s.at("n6"))
				s.turn(s.sweeper)
			}
			if reports := len(s.rewound); reports > 1 || (reports == 1) != c.want {
				t.Errorf("%d reports, want one: %v: %+v", reports, c.want, s.rewound)
			}
			if got := s.end().Rewound; got.IsZero() == c.want || c.want && got.Lost.Revision != at {
				t.Errorf("the stored end has %+v, want it rewound: %v", got, c.want)
			}
		})
	}
}

// failingEnds does not get an answer to some writes.
type failingEnds struct {
	sweep.Ends
	failures *int
}

func (e failingEnds) Write(ctx context.Context, end exchange.SweepEnd, revision uint64) (uint64, error) {
	if *e.failures > 0 {
		*e.failures--
		return 0, job.ErrUnknown
	}
	return e.Ends.Write(ctx, end, revision)
}

func TestARewoundLedgerIsReportedAfterAWriteThatFailed(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(1), State: job.Succeeded})
	s.endFailures = 2
	if err := s.sweeper.Turn(t.Context()); err == nil {
		t.Fatal("the end was stored")
	}
	s.remake(0)
	if err := s.sweeper.Turn(t.Context()); err == nil || len(s.rewound) > 0 {
		t.Fatalf("%v, %d reports", err, len(s.rewound))
	}
	for range 2 {
		s.turn(s.sweeper)
	}
	if len(s.rewound) != 1 || s.end().Rewound.IsZero() {
		t.Errorf("%d reports, and the stored end has %+v", len(s.rewound), s.end().Rewound)
	}
}

// No pass has stored the newest write, but the process that wrote it remembers it.
func TestALedgerThatIsRewoundAgainIsReportedAgain(t *testing.T) {
	s := newSite(t)
	cfg := s.config("n5")
	s.sweeper = sweep.New(cfg)
	copied := job.Record{Slot: slot(2), State: job.Succeeded}
	s.record(copied)
	s.record(job.Record{Slot: slot(1), State: job.Succeeded})
	s.turn(s.sweeper)
	for range 2 {
		s.remake(0, copied)
		s.turn(s.sweeper)
		s.turn(s.sweeper)
		cfg.Seen.Note(slot(1), s.record(job.Record{Slot: slot(1), State: job.Succeeded}), time.Now())
	}
	if len(s.rewound) != 2 {
		t.Errorf("%d reports, want two: %+v", len(s.rewound), s.rewound)
	}
}

func (s *site) remove(slot job.Slot) {
	s.Helper()
	bucket, err := s.js.KeyValue(s.Context(), "cronce_ledger")
	if err == nil {
		err = bucket.Delete(s.Context(), slot.Key())
	}
	if err != nil {
		s.Fatal(err)
	}
}

// remake deletes the ledger and creates it again, with the records of a copy. purged is the last
// sequence of a stream that was purged. While the server still removes the files of an earlier deletion, the
// new stream may have the messages of the old one, so remake then deletes it once more.
func (s *site) remake(purged uint64, restore ...job.Record) {
	s.Helper()
	natstest.Eventually(s, "a ledger without records", func() bool {
		old, err := s.js.Stream(s.Context(), "KV_cronce_ledger")
		if err != nil {
			s.Fatal(err)
		}
		if err := s.js.DeleteStream(s.Context(), "KV_cronce_ledger"); err != nil {
			s.Fatal(err)
		}
		cfg := old.CachedInfo().Config
		cfg.FirstSeq = purged
		made, err := s.js.CreateStream(s.Context(), cfg)
		if err != nil {
			s.Fatal(err)
		}
		return made.CachedInfo().State.Msgs == 0
	})
	for _, r := range restore {
		s.record(r)
	}
}
