package sweep_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// hold writes the lock of job report.
func (s *site) hold(holders, waiting []job.Slot) {
	s.Helper()
	l := core.Lock{Job: "report", Nonce: time.Now().String()}
	for _, slot := range holders {
		l.Holders = append(l.Holders, core.LockSlot{Slot: slot, At: slot.At})
	}
	for _, slot := range waiting {
		l.Waiting = append(l.Waiting, core.LockSlot{Slot: slot, At: slot.At})
	}
	_, at, _ := s.Locks().Read(s.Context(), "report")
	if _, err := s.Locks().Write(s.Context(), l, at); err != nil {
		s.Fatal(err)
	}
}

// The message of a slot was purged while the slot was in its job's lock, and the worker that had the
// message has died.
func TestAnAdmittedSlotWithoutAMessageIsOfferedOnce(t *testing.T) {
	run := job.Slot{Job: "report", Token: "k"}
	ended := job.Record{Slot: slot(3), State: job.Succeeded}
	const again = `/r2 {"n":1}`
	for name, c := range map[string]struct {
		holders, waiting []job.Slot
		records          []job.Record
		want             []string
	}{
		"it is a holder":                   {holders: []job.Slot{slot(1)}, want: []string{slot(1).ID() + again}},
		"it is the first in line":          {waiting: []job.Slot{slot(1), slot(0)}, want: []string{slot(1).ID() + again, slot(0).ID() + again}},
		"the one before it has ended":      {holders: []job.Slot{slot(3)}, waiting: []job.Slot{slot(1)}, records: []job.Record{ended}, want: []string{slot(1).ID() + again}},
		"a triggered run is a holder":      {holders: []job.Slot{run}, want: []string{run.ID() + "/r2 "}},
		"a triggered run is behind it":     {holders: []job.Slot{slot(1)}, waiting: []job.Slot{run}, want: []string{slot(1).ID() + again}},
		"a triggered run is first in line": {waiting: []job.Slot{run, slot(0)}, want: []string{slot(0).ID() + again, run.ID() + "/r2 "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, r := range c.records {
				s.record(r)
			}
			s.hold(c.holders, c.waiting)
			s.pass()
			s.shift = 25 * time.Second
			s.pass()
			s.want() // not yet
			for range 3 {
				s.shift += 50 * time.Second // under two minutes, the second time
				s.pass()
			}
			s.want(c.want...)
		})
	}
}

// The payload of a run is lost with its message. The run must not start with another payload.
func TestATriggeredRunThatIsLostInItsLockIsRecordedAsFailed(t *testing.T) {
	s := newSite(t)
	run := job.Slot{Job: "report", Token: "k"}
	s.hold([]job.Slot{run}, nil)
	s.pass()
	s.shift = 61 * time.Second
	s.pass()
	d := s.delivery()
	step := core.Decide(d, core.View{Now: time.Now(), Horizon: time.Hour, Handles: true})
	if step.Action != core.End || step.Record.State != job.Failed || step.Record.Slot != run {
		t.Errorf("a worker decides %+v, want the end of the run", step)
	}
}

// A chained slot has an instant that no schedule of its job has. A worker would end it as a slot of
// no plan if its new message did not say that it is chained.
func TestAChainedSlotThatIsLostInItsLockStillStarts(t *testing.T) {
	s := newSite(t)
	load := job.Slot{Job: "load", At: slot(1).At}
	d := plans.Definition{Job: job.Job{Name: "load", After: []string{"report"}, Payload: []byte(`{"n":2}`)}.WithDefaults(), Owner: "file", Node: "x", Nonce: "x"}
	if _, err := s.Jobs().Write(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	l := core.Lock{Job: "load", Nonce: "x", Holders: []core.LockSlot{{Slot: load, At: load.At}}}
	if _, err := s.Locks().Write(t.Context(), l, 0); err != nil {
		t.Fatal(err)
	}
	s.pass()
	s.shift = time.Minute
	s.pass()
	s.want(load.ID() + `/r2 {"n":2}`)
	entry, _, err := s.Jobs().Read(t.Context(), "load")
	if err != nil {
		t.Fatal(err)
	}
	step := core.Decide(s.delivery(), core.View{Now: time.Now(), Horizon: 24 * time.Hour, Handles: true, Entry: &entry, Admission: core.Admission{Kind: core.AdmissionGranted}})
	if step.Action != core.Start {
		t.Errorf("a worker decides %+v, want a start", step)
	}
}

// delivery returns the one message as a worker gets it.
func (s *site) delivery() core.Delivery {
	s.Helper()
	for w, err := range s.Waiting(s.Context(), stream.WaitingFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		return core.Delivery{Message: w.Message, Queue: w.Queue, Payload: w.Payload, Published: w.Published, Count: 1}
	}
	s.Fatal("there is no message")
	return core.Delivery{}
}

func TestASlotInALockIsNotOfferedIfItHasAMessageOrWaits(t *testing.T) {
	for name, c := range map[string]struct {
		holders, waiting []job.Slot
		records          []job.Record
		messages         []job.Slot
	}{
		"it runs":                {holders: []job.Slot{slot(1)}, records: []job.Record{{Slot: slot(1), State: job.Running, Node: "alive"}}},
		"another runs before it": {holders: []job.Slot{slot(1)}, waiting: []job.Slot{slot(0)}, records: []job.Record{{Slot: slot(1), State: job.Running, Node: "alive"}}},
		"it has a message":       {holders: []job.Slot{slot(1)}, messages: []job.Slot{slot(1)}},
		"a shard of it has":      {holders: []job.Slot{slot(1)}, messages: []job.Slot{slot(1).WithShard(2, 3)}},
		"it has ended":           {holders: []job.Slot{slot(1)}, records: []job.Record{{Slot: slot(1), State: job.Succeeded}}},
		"its job is gone":        {waiting: []job.Slot{job.NewSlot("gone", time.Now())}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, r := range c.records {
				s.record(r)
			}
			for _, m := range c.messages {
				s.publish(core.Message{Slot: m})
			}
			s.hold(c.holders, c.waiting)
			before := s.messages()
			s.pass()
			s.shift = 4 * time.Minute
			s.pass()
			s.pass()
			if got := s.messages(); !slices.Equal(got, before) {
				t.Errorf("offered %v", got)
			}
		})
	}
}

// Workers leave a short slot in its lock if no slot waits for it.
func TestAnEndedSlotInItsLockCostsNoReads(t *testing.T) {
	s := newSite(t)
	for n := range 3 {
		s.hold([]job.Slot{slot(n + 1)}, nil)
		s.record(job.Record{Slot: slot(n + 1), State: job.Succeeded})
		s.pass()
	}
	s.shift = 5 * time.Minute
	s.pass()
	s.want()
	if s.reads.Load() > 0 {
		t.Errorf("%d records were read", s.reads.Load())
	}
}

func TestTheWaitOfAnAdmittedSlotCountsFromItsAdmission(t *testing.T) {
	s := newSite(t)
	s.record(job.Record{Slot: slot(2), State: job.Running, Node: "alive"})
	s.hold([]job.Slot{slot(2)}, []job.Slot{slot(1)})
	s.pass()
	s.shift = 4 * time.Minute
	s.pass()
	s.want()
	s.record(job.Record{Slot: slot(2), State: job.Succeeded})
	s.shift = 0 // the lock is written by the server's clock
	s.hold([]job.Slot{slot(1)}, nil)
	s.pass()
	s.want()
	s.shift = time.Minute
	s.pass()
	s.want(slot(1).ID() + `/r2 {"n":1}`)
}

// The revisions of the new ledger begin at 1 again, below those that were read before.
func TestANewLedgerIsReadFromItsBeginning(t *testing.T) {
	s := newSite(t)
	for n := range 20 {
		s.record(job.Record{Slot: slot(n + 5), State: job.Succeeded})
	}
	s.pass()
	info, err := s.js.Stream(t.Context(), "KV_cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.js.DeleteStream(t.Context(), "KV_cronce_ledger"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.CreateStream(t.Context(), info.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	revision := s.record(job.Record{Slot: slot(1), State: job.Retrying, Attempt: 1, RetryAt: time.Now()})
	if revision > 20 {
		t.Fatalf("the new ledger is at revision %d, want one that was read before", revision)
	}
	s.shift = time.Minute
	s.pass()
	s.want(slot(1).ID() + `/r3 {"n":1}`)
}
