package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/node"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// shop is a namespace on a real server, with the job report.
type shop struct {
	*testing.T
	store  *kv.Store
	js     jetstream.JetStream
	nonces atomic.Int64
	slots  attach.Slots  // nil: the store's
	ledger attach.Ledger // nil: the store's
	at     time.Time     // the instant of slot
}

// listHandlers writes the list of handlers of a node.
func (s *shop) listHandlers(node string, jobs ...string) {
	s.Helper()
	if _, err := s.store.HandlerLists().Write(s.Context(), exchange.Handlers{Node: node, Jobs: jobs, Nonce: node}, 0); err != nil {
		s.Fatal(err)
	}
}

func newShop(t *testing.T) *shop {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store := kvtest.Open(t, js, kv.Options{Want: job.Settings{Lease: time.Second}})
	s := &shop{T: t, store: store, js: js, at: time.Now().Add(-10 * time.Minute).UTC().Truncate(time.Second)}
	_, err := store.Jobs().Write(t.Context(), plans.Definition{
		Job:   job.Job{Name: "report", Schedule: "@every 1s", Payload: []byte(`{"n":1}`), Retry: job.Retry{Attempts: 2}},
		Since: s.at.Add(-time.Hour), Owner: "file", Node: "web1", Nonce: "n",
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) as(operator string) *client.Client {
	slots := s.slots
	if slots == nil {
		slots = s.store.Slots()
	}
	ledger := s.ledger
	if ledger == nil {
		ledger = s.store.Ledger()
	}
	return client.Attach(attach.Parts{
		Jobs: s.store.Jobs(), Nodes: s.store.Nodes(), Handlers: s.store.HandlerLists(), Ledger: ledger, Slots: slots, Timers: s.store.Timers(),
		Watermark: s.store.Watermark(), Locks: s.store.Locks(), Fleet: s.store, Settings: s.store.Settings(), Operator: operator,
		Now:   func(context.Context) (time.Time, error) { return time.Now(), nil },
		Peers: node.NewPeers(node.PeersConfig{Store: s.store.Nodes(), Lease: s.store.Settings().Lease, Now: time.Now}),
	})
}

// record stores a record as a worker writes it, over any stored one.
func (s *shop) record(slot job.Slot, state job.State, edit func(*job.Record)) uint64 {
	s.Helper()
	r := job.Record{
		Slot: slot, Queue: "default", State: state, Attempt: 2, MaxAttempts: 2, Node: "web1-1", Nonce: fmt.Sprint("n", s.nonces.Add(1)),
		Due: slot.At, Published: s.at.Add(time.Millisecond), Publisher: "web2-1", Error: "boom",
		Attempts: []job.Attempt{{Number: 2, Node: "web1-1", Fence: 7, Started: s.at, Finished: s.at.Add(time.Second), Error: "boom"}},
	}
	if state.Final() {
		r.Finished = s.at.Add(time.Second)
	}
	if edit != nil {
		edit(&r)
	}
	_, revision, err := s.store.Ledger().Read(s.Context(), slot)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		s.Fatal(err)
	}
	if revision, err = s.store.Ledger().Write(s.Context(), r, revision); err != nil {
		s.Fatal(err)
	}
	return revision
}

func (s *shop) publish(m core.Message, payload string) {
	s.Helper()
	if _, err := s.store.Slots().Publish(s.Context(), "default", m, []byte(payload)); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) slot() job.Slot { return job.NewSlot("report", s.at) }

// messages returns the messages in the stream.
func (s *shop) messages() (all []stream.WaitingSlot) {
	s.Helper()
	for w, err := range s.store.Slots().Waiting(s.Context(), stream.WaitingFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

// told returns the kinds of the kept events, without orders.
func (s *shop) told() (kinds []string) {
	s.Helper()
	for e, err := range s.store.Events(s.Context(), kv.EventFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		kind := string(e.Kind)
		if e.Kind == job.EventOrdered {
			continue
		}
		if e.Reopened {
			kind = "reopened"
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

func quiet(client.CancelWait) {}

// strange is a token with characters that shells, subjects and JSON treat as special.
const strange = `a*b.c>"d'$(e)`

func TestCancelEndsAWaitingSlot(t *testing.T) {
	s := newShop(t)
	slot := job.Slot{Job: "report", Token: strange}
	s.publish(core.Message{Slot: slot, Node: "web2-1"}, "payload")
	for range 2 { // the second call finds it done
		r, err := s.as("alice@a").Cancel(t.Context(), slot.ID(), quiet)
		if err != nil || r.State != job.Cancelled || r.Error != "cancelled by alice@a" || string(r.Record.Payload) != "payload" || r.Publisher != "web2-1" {
			t.Fatalf("got %+v, %v", r, err)
		}
	}
	natstest.Eventually(t, "one outcome to be told", func() bool { return fmt.Sprint(s.told()) == "[cancelled]" })
	// The record has the payload, so the run can still be retried.
	if _, err := s.as("alice@a").Retry(t.Context(), slot.ID()); err != nil {
		t.Fatal(err)
	}
	if all := s.messages(); len(all) != 2 || string(all[1].Payload) != "payload" {
		t.Errorf("in the stream %+v, want the triggered run with its payload again", all)
	}
}

func TestCancelEndsATimer(t *testing.T) {
	s := newShop(t)
	slot := job.Slot{Job: "report", Token: strange}
	due := time.Now().Add(time.Hour)
	timer := stream.Timer{Message: core.Message{Slot: slot, Due: due, Node: "bob@b"}, Queue: "default", Payload: []byte("p")}
	if _, err := s.store.Timers().Set(t.Context(), timer, 0); err != nil {
		t.Fatal(err)
	}
	if story, err := s.as("alice@a").Explain(t.Context(), slot.ID()); err != nil || story.State != job.Pending || !strings.Contains(story.Why, "triggered by bob@b, and waits for its time") {
		t.Errorf("explained as %+v, %v", story, err)
	}
	for range 2 {
		r, err := s.as("alice@a").Cancel(t.Context(), slot.ID(), quiet)
		if err != nil || r.State != job.Cancelled || string(r.Record.Payload) != "p" {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	if _, _, err := s.store.Timers().Read(t.Context(), slot); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the timer: %v", err)
	}
	story, err := s.as("alice@a").Explain(t.Context(), slot.ID())
	if told := fmt.Sprint(story.Steps); err != nil || !strings.Contains(told, "published by bob@b, and ended before it was due") || strings.Contains(told, "0001-01-01") {
		t.Errorf("explained as %v, %v", story.Steps, err)
	}
	// The age of the run counts from its cancellation, so it can be retried. It then runs at
	// once.
	done, err := s.as("bob@b").Retry(t.Context(), slot.ID())
	if err != nil || done.Record.State != job.Retrying || done.Record.RetryAt.After(time.Now()) || time.Since(done.Record.Published) > natstest.Patience {
		t.Errorf("reopened: %+v, %v", done, err)
	}
	if all := s.messages(); len(all) != 1 || string(all[0].Payload) != "p" {
		t.Errorf("offered %+v", all)
	}
}

func TestCancelEndsARetryingSlot(t *testing.T) {
	s := newShop(t)
	s.record(s.slot(), job.Retrying, func(r *job.Record) { r.RetryAt = time.Now().Add(time.Hour) })
	r, err := s.as("alice@a").Cancel(t.Context(), s.slot().ID(), quiet)
	if err != nil || r.State != job.Cancelled || !r.RetryAt.IsZero() || len(r.Attempts) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestCancelRefusesAFinalSlot(t *testing.T) {
	s := newShop(t)
	var refused *client.SlotError
	if _, err := s.as("alice@a").Cancel(t.Context(), s.slot().ID(), quiet); !errors.As(err, &refused) || !errors.Is(err, job.ErrNotFound) {
		t.Errorf("no such slot: %v", err)
	}
	s.record(s.slot(), job.Succeeded, nil)
	if _, err := s.as("alice@a").Cancel(t.Context(), s.slot().ID(), quiet); !errors.As(err, &refused) || refused.State != job.Succeeded {
		t.Errorf("a slot that has succeeded: %v", err)
	}
}

// Only the owner writes the record while it may be alive. A silent owner must be proved dead
// first.
func TestCancelAsksTheOwnerOfARunningSlot(t *testing.T) {
	s := newShop(t)
	fence := s.record(s.slot(), job.Running, nil)
	_, err := s.store.Nodes().Write(t.Context(), exchange.Node{
		Name: "web1-1", State: exchange.NodeAlive, Lease: time.Second, Nonce: "beat",
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan uint64, 100)
	answer := atomic.Bool{}
	stop, err := s.store.ServeClaims("web1-1", owner(func(fence uint64) bool {
		asked <- fence
		return answer.Load()
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, give := context.WithCancel(t.Context())
	turns := 0
	_, err = s.as("alice@a").Cancel(ctx, s.slot().ID(), func(a client.CancelWait) {
		if a.Node != "web1-1" || a.Fence != fence || a.Silent || a.Ending != answer.Load() {
			t.Errorf("waits for %+v", a)
		}
		answer.Store(true)
		if turns++; turns == 3 {
			give()
		}
	})
	if !errors.Is(err, context.Canceled) || <-asked != fence {
		t.Errorf("given up: %v", err)
	}
	if _, revision, err := s.store.Ledger().Read(t.Context(), s.slot()); err != nil || revision != fence {
		t.Errorf("the owner's record is at revision %d, %v; want its claim, %d", revision, err, fence)
	}
	stop()
	silent := false
	r, err := s.as("alice@a").Cancel(t.Context(), s.slot().ID(), func(a client.CancelWait) { silent = silent || a.Silent && a.Wait > 0 })
	if err != nil || !silent || r.State != job.Cancelled || r.Attempts[0].Error != "worker web1-1 died" || r.Attempts[0].Fence != fence {
		t.Errorf("after the owner's silence: %+v, %v", r, err)
	}
	if n, err := s.store.Nodes().Read(t.Context(), "web1-1"); err != nil || n.Node.State != exchange.NodeFenced || n.Node.FencedBy != "alice@a" {
		t.Errorf("the owner was not fenced: %+v, %v", n, err)
	}
}

func TestRetryReopensAFinalSlot(t *testing.T) {
	s := newShop(t)
	for i, state := range []job.State{job.Failed, job.Missed, job.Skipped, job.Expired, job.Cancelled} {
		slot := job.NewSlot("report", s.at.Add(time.Duration(i)*time.Second))
		s.record(slot, state, nil)
		done, err := s.as("alice@a").Retry(t.Context(), slot.ID())
		if err != nil {
			t.Fatal(err)
		}
		r := done.Record
		if done.Left != 2 || r.State != job.Retrying || r.MaxAttempts != 4 || r.Attempt != 2 || len(r.Attempts) != 1 || !r.Finished.IsZero() {
			t.Errorf("%s: %+v, %v", state, done, err)
		}
		if want := fmt.Sprintf("given a new start by alice@a; it was %s: boom", state); r.Error != want {
			t.Errorf("%s: says %q, want %q", state, r.Error, want)
		}
		m := s.messages()[i]
		if m.Slot != slot || m.Offer < 1000 || string(m.Payload) != `{"n":1}` || m.Node != "alice@a" || !m.Due.Equal(slot.At) {
			t.Errorf("%s: offered %+v", state, m)
		}
		// A worker runs it as one more attempt.
		d := core.Delivery{Message: m.Message, Queue: "default", Published: m.Published}
		_, revision, err := s.store.Ledger().Read(t.Context(), slot)
		v := core.View{Now: time.Now(), Self: "web3-1", Horizon: time.Hour, Record: r, Revision: revision, Handles: true, Admission: core.Admission{Kind: core.AdmissionGranted}}
		step := core.Decide(d, v)
		if err != nil || step.Action != core.Start || step.Record.Attempt != 3 {
			t.Errorf("%s: a worker would %+v, %v", state, step, err)
		}
	}
	if told := s.told(); fmt.Sprint(told) != "[reopened reopened reopened reopened reopened]" {
		t.Errorf("told %v", told)
	}
}

// After a purge of one subject by hand, the server no longer delivers other messages in flight.
func TestRetryPublishesAStrandedSlot(t *testing.T) {
	s := newShop(t)
	other := s.slot()
	other.At = other.At.Add(time.Second)
	s.record(s.slot(), job.Retrying, func(r *job.Record) { r.Attempt, r.MaxAttempts = 1, 2 })
	s.publish(core.Message{Slot: s.slot()}, "{}")
	s.publish(core.Message{Slot: other}, "{}")
	if _, err := s.as("alice@a").Retry(t.Context(), s.slot().ID()); err == nil || !strings.Contains(err.Error(), "retried already") {
		t.Fatalf("with its message: %v", err)
	}
	natstest.Strand(t, s.js, "cronce")
	for slot, says := range map[job.Slot]string{s.slot(): "no message that a worker would receive", other: "no longer delivers its message"} {
		if story, err := s.as("alice@a").Explain(t.Context(), slot.ID()); err != nil || !strings.Contains(story.Why, says) {
			t.Errorf("explained as %q, %v; want %q", story.Why, err, says)
		}
	}
	if done, err := s.as("alice@a").Retry(t.Context(), s.slot().ID()); err != nil || done.Left != 1 {
		t.Errorf("got %+v, %v", done, err)
	}
	if all := s.messages(); len(all) != 3 || all[2].Slot != s.slot() || all[2].Stranded {
		t.Errorf("in the stream %+v", all)
	}
}

func TestRetryRefusesWhatCannotRun(t *testing.T) {
	s := newShop(t)
	next := func() job.Slot { s.at = s.at.Add(time.Second); return s.slot() }
	old := job.NewSlot("report", time.Now().Add(-25*time.Hour))
	s.record(old, job.Failed, nil)
	done := next()
	s.record(done, job.Succeeded, nil)
	runs := next()
	s.record(runs, job.Running, nil)
	retrying := next()
	s.record(retrying, job.Retrying, nil)
	s.publish(core.Message{Slot: retrying}, "")
	waits := next()
	s.publish(core.Message{Slot: waits}, "")
	missed := job.Slot{Job: "report", At: s.at, Range: true}
	s.record(missed, job.Missed, nil)
	foreign := job.NewSlot("gone", s.at)
	s.record(foreign, job.Failed, nil)
	before := len(s.messages())
	none := next()
	for slot, want := range map[job.Slot]string{
		old: "older than the horizon of 24h0m0s", done: "it has succeeded", runs: "it runs, on node web1-1",
		retrying: "is being retried already", waits: "for the first time", missed: "backfill", none: "no record", foreign: "not found",
	} {
		sentinel := job.ErrConflict // its state does not allow it
		if slot == none || slot == foreign {
			sentinel = job.ErrNotFound
		}
		if _, err := s.as("alice@a").Retry(t.Context(), slot.ID()); !errors.Is(err, sentinel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q and %v", slot, err, want, sentinel)
		}
	}
	if _, err := s.as("alice@a").Cancel(t.Context(), done.ID(), nil); !errors.Is(err, job.ErrConflict) {
		t.Errorf("cancel of one that has succeeded: %v", err)
	}
	if after := len(s.messages()); after != before {
		t.Errorf("%d messages were offered all the same", after-before)
	}
}

// Only one of two operators wins, and the slot is published once.
func TestRetryByTwoOperatorsIsAConflictForOne(t *testing.T) {
	s := newShop(t)
	s.record(s.slot(), job.Failed, nil)
	results := make(chan error, 8)
	for i := range cap(results) {
		go func() {
			_, err := s.as(fmt.Sprintf("operator%d@a", i)).Retry(t.Context(), s.slot().ID())
			results <- err
		}()
	}
	won := 0
	for range cap(results) {
		var conflict *client.SlotConflictError
		var refused *client.SlotError
		switch err := <-results; {
		case err == nil:
			won++
		case errors.As(err, &conflict) && errors.Is(err, job.ErrConflict) && strings.HasPrefix(conflict.By, "operator"):
		case errors.As(err, &refused) && refused.State == job.Retrying:
		default:
			t.Errorf("unclear: %v", err)
		}
	}
	// A call between the winner's write and its message publishes the same message.
	if all := s.messages(); won < 1 || len(all) != 1 {
		t.Errorf("%d of 8 won, %d messages", won, len(all))
	}
}

// The crash is between the record and the message.
func TestRetryFinishesAfterACrash(t *testing.T) {
	s := newShop(t)
	r := core.Reopen(job.Record{Slot: s.slot(), State: job.Failed, Attempt: 2, MaxAttempts: 2}, "alice@a", 2, time.Now())
	s.record(s.slot(), job.Retrying, func(was *job.Record) { r.Nonce, r.Queue, r.Published = was.Nonce, "default", was.Published; *was = r })
	for range 2 {
		done, err := s.as("alice@a").Retry(t.Context(), s.slot().ID())
		var refused *client.SlotError
		if (err != nil || done.Left != 2) && !errors.As(err, &refused) {
			t.Errorf("got %+v, %v", done, err)
		}
	}
	if all := s.messages(); len(all) != 1 || all[0].Slot != s.slot() {
		t.Errorf("offered %+v", all)
	}
}

// split stores a slot with three shards: one has succeeded, one has state second, and one
// waits in the stream.
func (s *shop) split(state job.State, second job.State) job.Slot {
	s.Helper()
	whole := s.slot()
	bare := func(r *job.Record) { r.Attempts, r.Attempt, r.MaxAttempts = nil, 0, 0 }
	s.record(whole, state, func(r *job.Record) { bare(r); r.Shards, r.Node, r.Error = 3, "", "" })
	s.record(whole.WithShard(1, 3), job.Succeeded, nil)
	s.record(whole.WithShard(2, 3), second, nil)
	return whole
}

func TestCancelEndsAllShards(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Running, job.Retrying)
	s.publish(core.Message{Slot: whole.WithShard(3, 3)}, "")
	r, err := s.as("alice@a").Cancel(t.Context(), whole.ID(), quiet)
	if err != nil || r.State != job.Cancelled || r.Error != "cancelled by alice@a" {
		t.Errorf("got %+v, %v", r, err)
	}
	for i, want := range []job.State{job.Succeeded, job.Cancelled, job.Cancelled} {
		if shard, _, err := s.store.Ledger().Read(t.Context(), whole.WithShard(i+1, 3)); err != nil || shard.State != want {
			t.Errorf("shard %d is %s, %v; want %s", i+1, shard.State, err, want)
		}
	}
	story, err := s.as("alice@a").Explain(t.Context(), whole.ID())
	if err != nil || !strings.Contains(story.Why, "3 shards: 2 cancelled, 1 succeeded") {
		t.Errorf("explained as %+v, %v", story, err)
	}
}

func TestCancelEndsASplitSlotBeforeItBegins(t *testing.T) {
	s := newShop(t)
	whole := s.slot()
	for i := range 3 {
		s.publish(core.Message{Slot: whole.WithShard(i+1, 3), JobRevision: 1}, "")
	}
	r, err := s.as("alice@a").Cancel(t.Context(), whole.ID(), quiet)
	if err != nil || r.State != job.Cancelled || r.Record.Slot != whole || r.Record.Shards != 3 {
		t.Fatalf("got %+v, %v", r, err)
	}
	// The shards do nothing more until the slot is retried.
	for range 2 {
		if done, err := s.as("alice@a").Retry(t.Context(), whole.ID()); err != nil || done.Left != 2 {
			t.Errorf("got %+v, %v", done, err)
		}
	}
	if n := len(s.messages()); n != 3 {
		t.Errorf("%d messages, want the three that wait", n)
	}
	if r, _, err := s.store.Ledger().Read(t.Context(), whole); err != nil || r.State != job.Running || r.Error != "" {
		t.Errorf("reopened, it is %+v, %v", r, err)
	}
}

func TestRetryThatIsRefusedLeavesTheOutcomeOfASplitSlot(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Failed, job.Failed)
	refused := func(id, want string) {
		t.Helper()
		if _, err := s.as("alice@a").Retry(t.Context(), id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
		if r, _, err := s.store.Ledger().Read(t.Context(), whole); err != nil || r.State != job.Failed {
			t.Errorf("after the refusal of %s the slot is %s, %v", id, r.State, err)
		}
	}
	refused(whole.WithShard(1, 3).ID(), "it has succeeded")
	refused(whole.WithShard(4, 5).ID(), "no record")
	_, revision, err := s.store.Jobs().Read(t.Context(), "report")
	if err == nil {
		err = s.store.Jobs().Delete(t.Context(), "report", revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused(whole.WithShard(2, 3).ID(), "not found")
	refused(whole.ID(), "not found")
	if told := s.told(); len(told) > 0 {
		t.Errorf("stored the events %v", told)
	}
}

func TestRetryReopensTheShardsThatDidNotSucceed(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Failed, job.Failed)
	s.record(whole.WithShard(3, 3), job.Cancelled, nil)
	done, err := s.as("alice@a").Retry(t.Context(), whole.ID())
	if err != nil || done.Left != 2 {
		t.Fatalf("got %+v, %v", done, err)
	}
	for shard, want := range map[job.Slot]job.State{
		whole: job.Running, whole.WithShard(1, 3): job.Succeeded, whole.WithShard(2, 3): job.Retrying, whole.WithShard(3, 3): job.Retrying,
	} {
		if r, _, err := s.store.Ledger().Read(t.Context(), shard); err != nil || r.State != want {
			t.Errorf("%s is %s, %v; want %s", shard, r.State, err, want)
		}
	}
	if all := s.messages(); len(all) != 2 {
		t.Errorf("offered %+v, want the two", all)
	}
}

// watched calls published before each message is published.
type watched struct {
	attach.Slots
	published func()
}

func (w watched) Put(ctx context.Context, queue string, m core.Message, payload []byte) (bool, error) {
	w.published()
	return w.Slots.Put(ctx, queue, m, payload)
}

// A shard may end before the message of the next one is published. If the others still had
// their old outcomes then, the whole slot would get its old outcome again.
func TestRetryOpensAllShardsBeforeItPublishesOne(t *testing.T) {
	s := newShop(t)
	whole := s.split(job.Cancelled, job.Cancelled)
	s.record(whole.WithShard(3, 3), job.Cancelled, nil)
	offers := 0
	s.slots = watched{s.store.Slots(), func() {
		offers++
		for i := range 3 {
			if r, _, err := s.store.Ledger().Read(t.Context(), whole.WithShard(i+1, 3)); err != nil || r.State == job.Cancelled {
				t.Errorf("at offer %d shard %d is %s, %v", offers, i+1, r.State, err)
			}
		}
	}}
	if _, err := s.as("alice@a").Retry(t.Context(), whole.ID()); err != nil || offers == 0 {
		t.Fatalf("%d offers, %v", offers, err)
	}
}

// The message was purged, and the worker that had it in flight may be dead. The slot keeps the
// job's other slots waiting until an operator cancels it.
func TestCancelEndsASlotThatHasOnlyItsLock(t *testing.T) {
	s := newShop(t)
	run := job.Slot{Job: "report", Token: strange}
	lock := core.Lock{Job: "report", Holders: []core.LockSlot{{Slot: run, At: s.at, Since: s.at}}, Nonce: "n"}
	if _, err := s.store.Locks().Write(t.Context(), lock, 0); err != nil {
		t.Fatal(err)
	}
	story, err := s.as("alice@a").Explain(t.Context(), run.ID())
	if err != nil || story.State != job.Pending || !strings.Contains(story.Why, "its message is gone") {
		t.Errorf("explained as %+v, %v", story, err)
	}
	r, err := s.as("alice@a").Cancel(t.Context(), run.ID(), quiet)
	if err != nil || r.State != job.Cancelled || r.Queue != "default" || !r.Published.Equal(s.at) {
		t.Fatalf("got %+v, %v", r, err)
	}
	var refused *client.SlotError
	if _, err := s.as("alice@a").Retry(t.Context(), run.ID()); !errors.As(err, &refused) || !strings.Contains(refused.Why, "payload") {
		t.Errorf("it is reopened without its payload: %v", err)
	}
	if _, err := s.as("alice@a").Cancel(t.Context(), "report:@other", quiet); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// owner answers requests to cancel a slot that it runs.
type owner func(fence uint64) (ending bool)

func (o owner) Cancel(_ string, fence uint64, _ error) bool { return o(fence) }
func (o owner) Holds(string) (holds, ended bool)            { return true, false }
