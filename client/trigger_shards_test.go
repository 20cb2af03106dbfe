package client_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// An order triggers all shards of a run, now or later, even if an earlier order triggered only
// some of them.
func TestTriggerPublishesAllShards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	j := job.Job{Name: "report", Schedule: "@hourly", Shards: 3}
	revision := s.define(t, plans.Definition{Job: j})
	due := time.Now().Add(time.Hour).UTC()
	whole := job.Slot{Job: "report", Token: "later"}
	half := stream.Timer{Message: core.Message{Slot: whole.WithShard(3, 3), JobRevision: revision, Due: due}, Queue: "default"}
	if _, err := s.store.Timers().Set(t.Context(), half, 0); err != nil {
		t.Fatal(err)
	}
	for _, o := range []order{{Job: "report", Key: "later", At: due}, {Job: "report", Key: "now"}} {
		if got := s.trigger(t, o); !got.New || got.Slot.Shards != 0 {
			t.Errorf("%s: %+v, want a new one of the whole slot", o.Key, got)
		}
		if got := s.trigger(t, o); got.New {
			t.Errorf("%s again: %+v", o.Key, got)
		}
	}
	seen := map[string]bool{}
	for _, w := range s.waiting(t) {
		seen[w.Slot.ID()] = true
	}
	for _, id := range []string{"report:@now#1of3", "report:@now#2of3", "report:@now#3of3", "report:@later#1of3", "report:@later#2of3", "report:@later#3of3"} {
		if !seen[id] || len(seen) != 6 {
			t.Fatalf("%s is not one of the six that wait: %v", id, seen)
		}
	}

	j.Queue = "other"
	s.define(t, plans.Definition{Job: j})
	if got := s.trigger(t, order{Job: "report", Key: "later"}); got.MovedFrom != "default" {
		t.Errorf("moved: %+v", got)
	}
	for _, w := range s.waiting(t) {
		if w.Timer && w.Queue != "other" {
			t.Errorf("%s still waits on queue %s", w.Slot, w.Queue)
		}
	}
	if err := s.store.Timers().Cancel(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	if all := s.waiting(t); len(all) != 3 || all[0].Slot.Token != "now" {
		t.Errorf("after a cancel: %+v", all)
	}
}

// The first order failed after it had set the timer of the last shard. Shards that start at other times,
// or with other payloads, would be no run of one order.
func TestTriggerKeepsTheTimeAndPayloadOfTheFirstOrderForAllShards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	revision := s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Shards: 3, Queue: "other"}})
	due := time.Now().Add(time.Hour).UTC()
	half := stream.Timer{
		Message: core.Message{Slot: job.Slot{Job: "report", Token: "k"}.WithShard(3, 3), JobRevision: revision, Due: due},
		Queue:   "default", Payload: []byte(`{"first":1}`),
	}
	if _, err := s.store.Timers().Set(t.Context(), half, 0); err != nil {
		t.Fatal(err)
	}
	got := s.trigger(t, order{Job: "report", Key: "k", At: due.Add(time.Hour), Payload: json.RawMessage(`{"second":2}`)})
	if got.New || !got.Due.Equal(due) || got.Queue != "other" {
		t.Errorf("got %+v, want the run of the first order", got)
	}
	all := s.waiting(t)
	for _, w := range all {
		if !w.Due.Equal(due) || string(w.Payload) != `{"first":1}` || w.Queue != "other" {
			t.Errorf("%s is due at %v with %s on queue %s", w.Slot, w.Due, w.Payload, w.Queue)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d timers, want 3", len(all))
	}
}

// The first order failed after it had published the last shard, and the stream folds that of the second.
func TestTriggerKeepsThePayloadOfTheFirstOrderForAllShardsThatStartNow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	apply := func(shards int) {
		t.Helper()
		if _, err := s.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "@hourly", Shards: shards}}, client.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	apply(3)
	for i, at := range []time.Time{{}, {}, time.Now().Add(time.Hour)} {
		half := core.Message{Slot: job.Slot{Job: "report", Token: fmt.Sprint("k", i)}.WithShard(3, 3), JobRevision: 1, Node: "first"}
		if _, err := s.store.Slots().Put(t.Context(), "default", half, []byte(`{"first":1}`)); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // the number of shards of the first order stays, too
			apply(2)
		}
		o := order{Job: "report", Key: half.Slot.Token, Payload: json.RawMessage(`{"second":2}`), At: at}
		for range 2 {
			if got := s.trigger(t, o); got.New || !got.Due.IsZero() {
				t.Errorf("got %+v, want the run of the first order", got)
			}
			if got, err := s.TriggerMany(t.Context(), "report", []client.TriggerOptions{o.options()}); err != nil || got[0].New {
				t.Errorf("many: got %+v, %v, want the run of the first order", got, err)
			}
		}
	}
	all := s.waiting(t)
	for _, w := range all {
		if string(w.Payload) != `{"first":1}` || w.Timer || w.Slot.Shards != 3 {
			t.Errorf("%s has the payload %s, as a timer: %v", w.Slot, w.Payload, w.Timer)
		}
	}
	if len(all) != 9 {
		t.Errorf("%d messages, want 9", len(all))
	}
}

// The worker that published it died before the first shard. A run is judged by what its shards have in
// common: a shard that is not chained would be late, or past its deadline, if the last one is not.
func TestTriggerKeepsTheMessageOfAChainedRunForAllShards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if _, err := s.Apply(t.Context(), []job.Job{{Name: "load", Schedule: "@hourly"}, {Name: "report", After: []string{"load"}, Shards: 3}}, client.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(-time.Hour).UTC()
	half := core.Message{Slot: job.Slot{Job: "report", Token: "k"}.WithShard(3, 3), JobRevision: 2, Node: "worker", Due: due, Chained: true, CaughtUp: true, Backfill: true}
	if _, err := s.store.Slots().Put(t.Context(), "default", half, nil); err != nil {
		t.Fatal(err)
	}
	if got := s.trigger(t, order{Job: "report", Key: "k"}); !got.Due.Equal(due) {
		t.Errorf("got %+v, want the run of the chain, due at %v", got, due)
	}
	all := s.waiting(t)
	for _, w := range all {
		if w.Slot.Whole() != half.Slot.Whole() || !w.Due.Equal(due) || !w.Chained || !w.CaughtUp || !w.Backfill || w.JobRevision != 2 {
			t.Errorf("got %+v, want a message like %+v", w.Message, half)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d messages, want 3", len(all))
	}
}

// A run keeps the number of shards with which it was ordered, and its timers are named by it.
func TestTriggerFindsATimerFromBeforeAnEditOfTheShards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	apply := func(queue string, shards int) {
		t.Helper()
		j := job.Job{Name: "report", Schedule: "@hourly", Queue: queue, Shards: shards}
		if _, err := s.Apply(t.Context(), []job.Job{j}, client.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	due := time.Now().Add(time.Hour)
	want := 0
	for _, shards := range []int{0, 3, 2} { // before the last edit
		apply("default", shards)
		s.trigger(t, order{Job: "report", Key: fmt.Sprint("of", shards), At: due})
		want += max(shards, 1)
	}
	apply("default", 4)
	for _, shards := range []int{0, 3, 2} {
		for _, again := range []order{{Job: "report", Key: fmt.Sprint("of", shards)}, {Job: "report", Key: fmt.Sprint("of", shards), At: due.Add(time.Hour)}} {
			if got := s.trigger(t, again); got.New || !got.Due.Equal(due) {
				t.Errorf("%s again, at %v: %+v, want the run at %v", again.Key, again.At, got, due)
			}
			if many, err := s.TriggerMany(t.Context(), "report", []client.TriggerOptions{again.options()}); err != nil || many[0].New {
				t.Errorf("%s again with others: %+v, %v", again.Key, many, err)
			}
		}
	}
	apply("other", 4)
	for _, shards := range []int{0, 3, 2} {
		if got := s.trigger(t, order{Job: "report", Key: fmt.Sprint("of", shards)}); got.MovedFrom != "default" {
			t.Errorf("of %d shards: %+v, want it moved", shards, got)
		}
	}
	all := s.waiting(t)
	for _, w := range all {
		if !w.Timer || w.Queue != "other" {
			t.Errorf("%s waits in queue %s, as a timer: %v", w.Slot, w.Queue, w.Timer)
		}
	}
	if len(all) != want {
		t.Errorf("%d timers and messages wait, want %d", len(all), want)
	}
}
