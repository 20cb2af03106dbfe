package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestExplainNamesTheHolderOfTheLock(t *testing.T) {
	s := newShop(t)
	slot, holder := s.slot(), job.NewSlot("report", s.at.Add(-time.Second))
	if _, err := s.store.Ledger().Write(t.Context(), job.Record{Slot: slot, Queue: "default", State: job.Waiting, Node: "web1-1", Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	lock := core.Lock{Job: "report", Holders: []core.LockSlot{{Slot: holder, At: holder.At}}, Waiting: true, Line: 1, Nonce: "n"}
	if _, err := s.store.Locks().Write(t.Context(), lock, 0); err != nil {
		t.Fatal(err)
	}
	n := exchange.Node{Name: "web1-1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"default"}, Nonce: "n"}
	if _, err := s.store.Nodes().Write(t.Context(), n, 0); err != nil {
		t.Fatal(err)
	}
	s.listHandlers("web1-1", "report")
	story, err := s.as("alice@a").Explain(t.Context(), slot.ID())
	if err != nil || !strings.Contains(story.Why, "when one of these has its outcome: "+holder.ID()) {
		t.Errorf("explained as %+v, %v", story, err)
	}
}

func TestExplainSaysThatIdleWorkersDoNotPull(t *testing.T) {
	s := newShop(t)
	slot := s.slot()
	s.publish(core.Message{Slot: slot}, "")
	s.listHandlers("web1-1", "report")
	explain := func(running int, after time.Duration, queues ...string) string {
		t.Helper()
		last, _ := s.store.Nodes().Read(t.Context(), "web1-1")
		n := exchange.Node{Name: "web1-1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: append(queues, "default"), Running: running, Nonce: "n" + time.Now().String()}
		if _, err := s.store.Nodes().Write(t.Context(), n, last.Revision); err != nil {
			t.Fatal(err)
		}
		c := client.Attach(attach.Parts{
			Jobs: s.store.Jobs(), Nodes: s.store.Nodes(), Handlers: s.store.HandlerLists(), Ledger: s.store.Ledger(), Slots: s.store.Slots(), Timers: s.store.Timers(),
			Watermark: s.store.Watermark(), Locks: s.store.Locks(), Fleet: s.store, Settings: s.store.Settings(),
			Now: func(context.Context) (time.Time, error) { return time.Now().Add(after), nil },
		})
		story, err := c.Explain(t.Context(), slot.ID())
		if err != nil {
			t.Fatal(err)
		}
		return story.Why
	}
	const place, ready = "for a free worker", "a service that they call is not ready"
	for _, test := range []struct {
		running int
		after   time.Duration
		want    string
	}{{0, 0, place}, {16, time.Minute, place}, {0, time.Minute, ready}} {
		if why := explain(test.running, test.after); !strings.Contains(why, test.want) {
			t.Errorf("%d run on its worker, it waits for %v: %q, want %q", test.running, test.after, why, test.want)
		}
	}
	if why := explain(1, time.Minute, "other"); !strings.Contains(why, "slots of their other queues") {
		t.Errorf("its worker runs a slot, perhaps of another queue: %q", why)
	}
}

// The subject of an event that concerns no job ends like that of a job with the name _.
func TestExplainTellsEachEventOfAJobNamedLikeNoJobOnce(t *testing.T) {
	s := newShop(t)
	slot := job.NewSlot("_", s.at)
	s.record(slot, job.Failed, nil)
	e := job.Event{V: 1, Kind: job.EventRefused, Time: time.Now().UTC(), Node: "web9-1", ID: slot.ID(), Job: "_", Attempt: 1, Error: "boom"}
	if err := s.store.StoreEvent(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	story, err := s.as("alice@a").Explain(t.Context(), slot.ID())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, step := range story.Steps {
		if step.Node == "web9-1" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d times in %+v", n, story.Steps)
	}
}

func TestExplainSaysThatTheJobWasRemovedAndByWhichOperator(t *testing.T) {
	s := newShop(t)
	pending, retrying, later := s.slot(), job.NewSlot("report", s.at.Add(-time.Second)), job.Slot{Job: "report", Token: "later"}
	s.publish(core.Message{Slot: pending}, "")
	s.record(retrying, job.Retrying, nil)
	timer := stream.Timer{Message: core.Message{Slot: later, Due: time.Now().Add(time.Hour), Node: "bob@b"}, Queue: "default"}
	if _, err := s.store.Timers().Set(t.Context(), timer, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.as("alice@a").Remove(t.Context(), "report", client.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	const removed = "Job report was removed from the registry by alice@a at "
	natstest.Eventually(t, "the order to remove it", func() bool {
		story, err := s.as("bob@b").Explain(t.Context(), "report:@none")
		return err == nil && strings.HasPrefix(story.Why, removed)
	})
	for id, says := range map[string]string{
		pending.ID():                  "the next worker of queue default that receives the slot ends it without running it",
		retrying.ID():                 "only workers that still have a handler for it make further attempts",
		later.ID():                    "the slot ends without being run",
		"report:@none":                "this one has no record",
		"report:2050-01-01T00:00:00Z": "this one has no record",
	} {
		story, err := s.as("bob@b").Explain(t.Context(), id)
		if err != nil || !strings.Contains(story.Why, removed) || !strings.Contains(story.Why, says) {
			t.Errorf("%s: %q, %v; want %q", id, story.Why, err, says)
		}
	}
	if story, err := s.as("bob@b").Explain(t.Context(), "other:@none"); err != nil || strings.Contains(story.Why, "removed") {
		t.Errorf("a job that never was: %q, %v", story.Why, err)
	}
	for _, id := range []string{pending.ID(), later.ID()} { // as the story advises
		if got, err := s.as("bob@b").Cancel(t.Context(), id, quiet); err != nil || got.State != job.Cancelled {
			t.Errorf("cancel %s: %+v, %v", id, got, err)
		}
	}
}
