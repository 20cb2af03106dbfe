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

// hold writes the lock of job report, with holders that got their places now.
func (s *site) hold(holders ...job.Slot) { s.holdAs(core.Lock{}, holders...) }

func (s *site) holdAs(l core.Lock, holders ...job.Slot) {
	s.Helper()
	l.Job, l.Nonce = "report", time.Now().String()
	for _, slot := range holders {
		l.Holders = append(l.Holders, core.LockSlot{Slot: slot, At: slot.At, Since: time.Now()})
	}
	_, at, _ := s.Locks().Read(s.Context(), "report")
	if _, err := s.Locks().Write(s.Context(), l, at); err != nil {
		s.Fatal(err)
	}
}

// stand puts a slot of job report into the line, and returns the entry's sequence.
func (s *site) stand(r job.Record) uint64 {
	s.Helper()
	r.State, r.Queue = job.Waiting, "default"
	if r.Published.IsZero() {
		r.Published = time.Now()
	}
	sequence, err := s.Lines().Put(s.Context(), core.Entry{Slot: r.Slot, At: r.Slot.At}, s.record(r))
	if err != nil {
		s.Fatal(err)
	}
	return sequence
}

// The message of a slot was purged while the slot held a place in its job's lock, and the worker that had
// the message has died. Or the worker died after it had called the slot, or before it left the lock.
func TestAHolderThatDoesNotMoveIsOfferedOnce(t *testing.T) {
	run := job.Slot{Job: "report", Token: "k"}
	for name, c := range map[string]struct {
		holder job.Slot
		record *job.Record
		want   string
	}{
		"it has no record":                 {slot(1), nil, slot(1).ID() + `/r2 {"n":1}`},
		"a triggered run has no record":    {run, nil, run.ID() + "/r2 "},
		"it was called from the line":      {slot(1), &job.Record{State: job.Waiting, Queue: "default"}, slot(1).ID() + `/r3 {"n":1}`},
		"a triggered run was called":       {run, &job.Record{State: job.Waiting, Queue: "default", Payload: []byte(`{"own":1}`)}, run.ID() + `/r3 {"own":1}`},
		"it has ended and holds its place": {slot(1), &job.Record{State: job.Succeeded, Queue: "default"}, slot(1).ID() + `/r3 {"n":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if c.record != nil {
				c.record.Slot = c.holder
				s.record(*c.record)
			}
			s.hold(c.holder)
			s.pass()
			s.shift = 25 * time.Second
			s.pass()
			s.want() // not yet
			for range 3 {
				s.shift += 50 * time.Second // under two minutes, the second time
				s.pass()
			}
			s.want(c.want)
		})
	}
}

// The first slot of the line is called by the worker that gets its message.
func TestALineBesideAFreePlaceIsOfferedItsFirstSlot(t *testing.T) {
	s := newSite(t)
	s.stand(job.Record{Slot: slot(3)})
	s.stand(job.Record{Slot: slot(2)})
	s.holdAs(core.Lock{Waiting: true, Line: 1})
	s.pass()
	s.want()
	s.shift = time.Minute
	s.pass()
	s.want(slot(3).ID() + `/r3 {"n":1}`)
}

func TestSlotsThatAreTooOldInTheLineAreOffered(t *testing.T) {
	s := newSite(t)
	s.stand(job.Record{Slot: slot(3), StartBy: time.Now().Add(10 * time.Second)})
	s.stand(job.Record{Slot: slot(2), StartBy: time.Now().Add(time.Hour)})
	s.record(job.Record{Slot: slot(4), State: job.Running, Node: "alive"})
	s.holdAs(core.Lock{Waiting: true, Line: 1}, slot(4))
	s.pass()
	s.want()
	s.shift = 20 * time.Second
	s.pass()
	s.want(slot(3).ID() + `/r3 {"n":1}`)
}

// The entries before Lock.Line do not count any more.
func TestAPassRemovesWhatWasCalledFromTheLine(t *testing.T) {
	s := newSite(t)
	s.stand(job.Record{Slot: slot(3)})
	second := s.stand(job.Record{Slot: slot(2)})
	s.record(job.Record{Slot: slot(4), State: job.Running, Node: "alive"})
	s.holdAs(core.Lock{Waiting: true, Line: second}, slot(4))
	s.pass()
	left, err := s.Lines().Read(t.Context(), "report", 0)
	if err != nil || len(left) != 1 || left[0].Sequence != second {
		t.Errorf("the line has %+v, %v; want the entry %d only", left, err, second)
	}
}

// The payload of a run is lost with its message. The run must not start with another payload.
func TestATriggeredRunThatIsLostInItsLockIsRecordedAsFailed(t *testing.T) {
	s := newSite(t)
	run := job.Slot{Job: "report", Token: "k"}
	s.hold(run)
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
	l := core.Lock{Job: "load", Nonce: "x", Holders: []core.LockSlot{{Slot: load, At: load.At, Since: time.Now()}}}
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

func TestASlotInALockIsNotOfferedIfItHasAMessageOrRuns(t *testing.T) {
	for name, c := range map[string]struct {
		holder   job.Slot
		records  []job.Record
		messages []job.Slot
	}{
		"it runs":           {holder: slot(1), records: []job.Record{{Slot: slot(1), State: job.Running, Node: "alive"}}},
		"it has a message":  {holder: slot(1), messages: []job.Slot{slot(1)}},
		"a shard of it has": {holder: slot(1), messages: []job.Slot{slot(1).WithShard(2, 3)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, r := range c.records {
				s.record(r)
			}
			for _, m := range c.messages {
				s.publish(core.Message{Slot: m})
			}
			s.hold(c.holder)
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
