package sweep_test

import (
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// The job was edited after its slot was published. No schedule of the job has the slot's instant, so a
// worker would end a shard as a slot of no plan if its new message did not say that it is chained.
func TestAShardOfAChainedSlotStillStartsAfterAnEditIfItsMessageIsLost(t *testing.T) {
	s := newSite(t)
	d := plans.Definition{Job: job.Job{Name: "load", After: []string{"report"}, Shards: 2}.WithDefaults(), Owner: "file", Node: "x", Nonce: "1"}
	first, err := s.Jobs().Write(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	load := job.Slot{Job: "load", At: slot(1).At}
	s.record(job.Record{Slot: load, State: job.Running, Shards: 2, JobRevision: first, Due: time.Now(), Published: time.Now()})
	d.Nonce, d.Job.Payload = "2", []byte(`{"n":2}`)
	if _, err := s.Jobs().Write(t.Context(), d, first); err != nil {
		t.Fatal(err)
	}
	entry, _, err := s.Jobs().Read(t.Context(), "load")
	if err != nil {
		t.Fatal(err)
	}
	s.pass()
	s.shift = time.Minute
	s.pass()
	whole, revision, err := s.Ledger().Read(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	offered := 0
	for w, err := range s.Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		offered++
		step := core.Decide(core.Delivery{Message: w.Message, Queue: w.Queue, Payload: w.Payload, Published: w.Published, Count: 1}, core.View{
			Now: time.Now(), Horizon: 24 * time.Hour, Handles: true, Entry: &entry,
			Whole: core.Whole{Known: true, Record: &whole, Revision: revision}, Admission: core.Admission{Kind: core.AdmissionGranted},
		})
		if step.Action != core.Start {
			t.Errorf("a worker decides %+v about %s, want a start", step, w.Slot)
		}
	}
	if offered != 2 {
		t.Errorf("%d shards were offered, want 2", offered)
	}
}

// A triggered run that follows from others is due when the last of these succeeded, but its deadline
// counts from its publication.
func TestAShardOfATriggeredRunThatFollowsHasItsWholeDeadlineIfItsMessageIsLost(t *testing.T) {
	s := newSite(t)
	d := plans.Definition{Job: job.Job{Name: "load", After: []string{"report"}, Shards: 2, Deadline: 10 * time.Second}.WithDefaults(), Owner: "file", Node: "x", Nonce: "1"}
	revision, err := s.Jobs().Write(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(-time.Minute)
	s.record(job.Record{Slot: job.Slot{Job: "load", Token: "k"}, State: job.Running, Shards: 2, JobRevision: revision, Due: due, Published: due})
	s.shift = time.Minute
	s.pass()
	offered := 0
	for w, err := range s.Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		offered++
		by, ok := core.StartBy(core.Delivery{Message: w.Message, Published: w.Published}, plans.Entry{Definition: d})
		if !ok || by.Before(w.Published) {
			t.Errorf("%s is offered at %v and must start by %v", w.Slot, w.Published, by)
		}
	}
	if offered != 2 {
		t.Errorf("%d shards were offered, want 2", offered)
	}
}
