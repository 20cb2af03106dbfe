package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// writes calls before with each record that a client writes, before it is stored.
type writes struct {
	attach.Ledger
	before func(job.Record)
}

func (w writes) Write(ctx context.Context, r job.Record, revision uint64) (uint64, error) {
	w.before(r)
	return w.Ledger.Write(ctx, r, revision)
}

// concludes writes the outcome of a split slot at revision, as a worker does that has found all
// shards with an outcome.
func (s *shop) concludes(whole job.Slot, revision uint64) error {
	r, _, err := s.store.Ledger().Read(s.Context(), whole)
	if err != nil {
		s.Fatal(err)
	}
	r.Nonce = "another worker"
	r.State, r.Node, r.Finished, r.Error = job.Failed, "web3-1", time.Now(), "boom"
	_, err = s.store.Ledger().Write(s.Context(), r, revision)
	return err
}

// whileItReopens calls f once, when the client is about to reopen a shard: the slot has no outcome any
// more then, but all its shards have.
func (s *shop) whileItReopens(whole job.Slot, f func(revision uint64)) {
	var once sync.Once
	s.ledger = writes{s.store.Ledger(), func(r job.Record) {
		if r.Slot.Shards == 0 {
			return
		}
		once.Do(func() {
			stored, revision, err := s.store.Ledger().Read(s.Context(), whole)
			if err != nil || stored.State != job.Running {
				s.Fatalf("the slot is %s, %v; want it reopened", stored.State, err)
			}
			f(revision)
		})
	}}
}

// A message of a shard that is delivered again, or the sweep, makes a worker look at all shards.
func TestRetryRemovesAnOutcomeThatASplitSlotGetsMeanwhile(t *testing.T) {
	for name, id := range map[string]func(job.Slot) string{
		"of the whole": job.Slot.ID, "of one shard": func(whole job.Slot) string { return whole.WithShard(2, 3).ID() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			whole := s.split(job.Failed, job.Failed)
			s.record(whole.WithShard(3, 3), job.Cancelled, nil)
			s.whileItReopens(whole, func(revision uint64) {
				if err := s.concludes(whole, revision); err != nil {
					t.Error(err)
				}
			})
			s.slots = watched{s.store.Slots(), func() {
				if r, _, err := s.store.Ledger().Read(t.Context(), whole); err != nil || r.State != job.Running {
					t.Errorf("when a message is published, the slot is %s, %v", r.State, err)
				}
			}}
			if _, err := s.as("alice@a").Retry(t.Context(), id(whole)); err != nil || len(s.messages()) == 0 {
				t.Errorf("got %v and the messages %+v", err, s.messages())
			}
			if told := s.told(); len(told) < 3 || told[0] != "reopened" {
				t.Errorf("told %v, want that each outcome was removed", told)
			}
		})
	}
}

// The worker has read all shards before they were reopened, and then slept.
func TestRetryLetsNobodyWriteAnOutcomeOfASplitSlotLate(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Failed, job.Failed)
	s.record(whole.WithShard(3, 3), job.Cancelled, nil)
	var read uint64
	s.whileItReopens(whole, func(revision uint64) { read = revision })
	if _, err := s.as("alice@a").Retry(t.Context(), whole.ID()); err != nil || read == 0 {
		t.Fatalf("read at %d, %v", read, err)
	}
	if err := s.concludes(whole, read); !errors.Is(err, job.ErrConflict) {
		t.Errorf("the outcome of before: %v", err)
	}
}

// The operator of a cancellation may be about to cancel the shards.
func TestRetryLeavesTheMarkOfACancellation(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Failed, job.Failed)
	s.whileItReopens(whole, func(revision uint64) {
		r, _, err := s.store.Ledger().Read(t.Context(), whole)
		if err == nil {
			r = core.MarkWhole(r, errors.New("cancelled by bob@b"))
			r.Nonce = "bob"
			_, err = s.store.Ledger().Write(t.Context(), r, revision)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if _, err := s.as("alice@a").Retry(t.Context(), whole.ID()); err != nil {
		t.Fatal(err)
	}
	if r, _, err := s.store.Ledger().Read(t.Context(), whole); err != nil || r.Error != "cancelled by bob@b" {
		t.Errorf("the slot says %q, %v", r.Error, err)
	}
}

// Shards that were reopened before the conflict would otherwise run without the others.
func TestRetryGoesOnBehindAnotherRetryOfASplitSlot(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Failed, job.Failed)
	s.record(whole.WithShard(3, 3), job.Cancelled, nil)
	bob := s.as("bob@b")
	s.whileItReopens(whole, func(uint64) {
		if _, err := bob.Retry(t.Context(), whole.WithShard(2, 3).ID()); err != nil {
			t.Error(err)
		}
	})
	done, err := s.as("alice@a").Retry(t.Context(), whole.ID())
	if err != nil || done.Left != 2 {
		t.Errorf("got %+v, %v", done, err)
	}
	for i, want := range []job.State{job.Succeeded, job.Retrying, job.Retrying} {
		if r, _, err := s.store.Ledger().Read(t.Context(), whole.WithShard(i+1, 3)); err != nil || r.State != want {
			t.Errorf("shard %d is %s, %v; want %s", i+1, r.State, err, want)
		}
	}
	if all := s.messages(); len(all) != 2 {
		t.Errorf("offered %+v, want a message for each", all)
	}
}

// No schedule has the instant of a chained slot. A worker that knows a newer definition would end its
// shard as one of no plan.
func TestRetryOfAChainedSlotStartsItsShardsAfterAnEdit(t *testing.T) {
	s := newShop(t)
	d := plans.Definition{Job: job.Job{Name: "load", After: []string{"report"}, Shards: 2}.WithDefaults(), Owner: "file", Node: "x", Nonce: "1"}
	revision, err := s.store.Jobs().Write(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	load := job.Slot{Job: "load", At: s.at}
	s.record(load, job.Skipped, func(r *job.Record) { r.Shards, r.Node, r.Attempts, r.Attempt, r.MaxAttempts = 2, "", nil, 0, 0 })
	if _, err := s.as("alice@a").Retry(t.Context(), load.ID()); err != nil {
		t.Fatal(err)
	}
	d.Nonce, d.Job.Payload = "2", []byte(`{"n":2}`)
	if _, err := s.store.Jobs().Write(t.Context(), d, revision); err != nil {
		t.Fatal(err)
	}
	entry, _, err := s.store.Jobs().Read(t.Context(), "load")
	if err != nil {
		t.Fatal(err)
	}
	whole, revision, err := s.store.Ledger().Read(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	all := s.messages()
	for _, w := range all {
		step := core.Decide(core.Delivery{Message: w.Message, Queue: w.Queue, Payload: w.Payload, Published: w.Published, Count: 1}, core.View{
			Now: time.Now(), Horizon: 24 * time.Hour, Handles: true, Entry: &entry,
			Whole: core.Whole{Known: true, Record: &whole, Revision: revision}, Admission: core.Admission{Kind: core.AdmissionGranted},
		})
		if step.Action != core.Start {
			t.Errorf("a worker decides %+v about %s, want a start", step, w.Slot)
		}
	}
	if len(all) != 2 {
		t.Errorf("%d shards were offered, want 2", len(all))
	}
}

// Its operator died before all shards were cancelled. Workers would end the reopened shards at once.
func TestRetryRefusesASplitSlotThatIsBeingCancelled(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Running, job.Cancelled)
	s.record(whole.WithShard(3, 3), job.Running, nil)
	r, revision, err := s.store.Ledger().Read(t.Context(), whole)
	if err != nil {
		t.Fatal(err)
	}
	r = core.MarkWhole(r, errors.New("cancelled by bob@b"))
	r.Nonce = "bob"
	if _, err := s.store.Ledger().Write(t.Context(), r, revision); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{whole.ID(), whole.WithShard(2, 3).ID()} {
		_, err := s.as("alice@a").Retry(t.Context(), id)
		if !errors.Is(err, job.ErrConflict) || !strings.Contains(err.Error(), "it is being cancelled") {
			t.Errorf("%s: got %v", id, err)
		}
	}
	if r, _, err := s.store.Ledger().Read(t.Context(), whole.WithShard(2, 3)); err != nil || r.State != job.Cancelled || len(s.messages()) != 0 {
		t.Errorf("the shard is %s, %v, with the messages %+v", r.State, err, s.messages())
	}
}

// The whole slot has lost its outcome by then, so an error would not be true that nothing was changed.
func TestRetryOfAShardGoesOnBehindAnotherRetryOfIt(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Failed, job.Failed)
	shard := whole.WithShard(2, 3)
	bob := s.as("bob@b")
	s.whileItReopens(whole, func(uint64) {
		if _, err := bob.Retry(t.Context(), shard.ID()); err != nil {
			t.Error(err)
		}
	})
	_, err := s.as("alice@a").Retry(t.Context(), shard.ID())
	if refused, is := errors.AsType[*client.SlotError](err); !is || refused.State != job.Retrying {
		t.Errorf("got %v, want that it is being retried already", err)
	}
	if all := s.messages(); len(all) != 1 {
		t.Errorf("offered %+v, want one message", all)
	}
}

// Another operator has retried the only shard without success, and it succeeds. The whole slot has lost its outcome
// by then.
func TestRetryConcludesASplitSlotAgainIfItsShardsHaveEndedMeanwhile(t *testing.T) {
	for name, id := range map[string]func(job.Slot) string{
		"of the whole": job.Slot.ID, "of one shard": func(whole job.Slot) string { return whole.WithShard(2, 3).ID() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			whole := s.split(job.Failed, job.Failed)
			for _, n := range []int{1, 3} {
				s.record(whole.WithShard(n, 3), job.Succeeded, nil)
			}
			s.whileItReopens(whole, func(uint64) { s.record(whole.WithShard(2, 3), job.Succeeded, nil) })
			_, err := s.as("alice@a").Retry(t.Context(), id(whole))
			if _, refused := errors.AsType[*client.SlotError](err); !refused {
				t.Errorf("got %v, want that nothing is left to retry", err)
			}
			if r, _, err := s.store.Ledger().Read(t.Context(), whole); err != nil || r.State != job.Succeeded {
				t.Errorf("the slot is %s, %v; want its outcome", r.State, err)
			}
		})
	}
}
