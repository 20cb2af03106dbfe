package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// site is a namespace on a real server, with the client of alice.
type site struct {
	*client.Client
	store  *kv.Store
	server *natstest.Server
}

func benchSite(b *testing.B) *site {
	server := natstest.Run(b)
	store := kvtest.Open(b, server.JetStream(), kv.Options{})
	d := plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}, Nonce: "n"}
	if _, err := store.Jobs().Write(b.Context(), d, 0); err != nil {
		b.Fatal(err)
	}
	return &site{client.Attach(attach.Of(nil, store, attach.Options{Operator: "bench"})), store, server}
}

func newSite(t *testing.T) *site {
	t.Helper()
	server := natstest.Run(t)
	return siteAt(t, server, server.ClientURL())
}

func siteAt(t *testing.T, server *natstest.Server, url string) *site {
	t.Helper()
	store := kvtest.Open(t, natstest.JetStream(t, natstest.Connect(t, url)), kv.Options{})
	s := &site{store: store, server: server}
	s.Client = s.withTimers(store.Timers())
	return s
}

// withTimers returns a client of the site that uses these timers.
func (s *site) withTimers(timers attach.Timers) *client.Client {
	store := s.store
	return client.Attach(attach.Parts{
		Jobs: store.Jobs(), Nodes: store.Nodes(), Ledger: store.Ledger(), Slots: store.Slots(), Timers: timers, Fleet: store, News: store,
		Settings: store.Settings(), Now: store.Time, Operator: "alice@laptop",
	})
}

// order is a call of Trigger.
type order struct {
	Job, Key string
	At       time.Time
	Payload  json.RawMessage
}

func (o order) options() client.TriggerOptions {
	return client.TriggerOptions{Key: o.Key, At: o.At, Payload: o.Payload}
}

// define stores a definition over any stored one.
func (s *site) define(t *testing.T, d plans.Definition) uint64 {
	t.Helper()
	d.Job, d.Nonce = d.Job.WithDefaults(), fmt.Sprint("nonce", time.Now().UnixNano())
	_, revision, err := s.store.Jobs().Read(t.Context(), d.Job.Name)
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	if revision, err = s.store.Jobs().Write(t.Context(), d, revision); err != nil {
		t.Fatal(err)
	}
	return revision
}

func (s *site) record(t *testing.T, slot job.Slot, state job.State) {
	t.Helper()
	r := job.Record{Slot: slot, Queue: "default", State: state, Node: "web1", Nonce: slot.ID()}
	if _, err := s.store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
}

func (s *site) waiting(t *testing.T) []stream.WaitingSlot {
	t.Helper()
	var all []stream.WaitingSlot
	for w, err := range s.store.Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

func (s *site) trigger(t *testing.T, o order) client.Run {
	t.Helper()
	got, err := s.Trigger(t.Context(), o.Job, o.options())
	if err != nil {
		t.Fatal(err)
	}
	return client.Run{Slot: got.Slot, New: got.New, State: got.State, Queue: got.Queue, Due: got.Due, MovedFrom: got.MovedFrom}
}

func TestTriggerNowIsOneMessageForOneKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	revision := s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "slow", Payload: json.RawMessage(`{"own":1}`)}, Paused: true})
	slot := job.Slot{Job: "report", Token: "k"}
	want := client.Run{Slot: slot, New: true, State: job.Pending, Queue: "slow"}
	if got := s.trigger(t, order{Job: "report", Key: "k"}); got != want {
		t.Errorf("first: %+v, want %+v", got, want)
	}
	want.New = false
	if got := s.trigger(t, order{Job: "report", Key: "k", Payload: json.RawMessage(`{"other":2}`)}); got != want {
		t.Errorf("second: %+v, want %+v", got, want)
	}
	all := s.waiting(t)
	m := core.Message{Slot: slot, JobRevision: revision, Node: "alice@laptop"}
	if len(all) != 1 || all[0].Message != m || all[0].Queue != "slow" {
		t.Fatalf("waiting: %+v, want one of %+v", all, m)
	}
	c, err := s.store.Slots().Queue(t.Context(), "slow")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Next(jetstream.FetchPriorityGroup(layout.WorkerGroup)); err != nil || string(got.Data()) != `{"own":1}` {
		t.Errorf("delivered %v, %v; want the job's own payload", got, err)
	}

	s.record(t, slot, job.Failed)
	want.State, want.Queue = job.Failed, "default" // from the record
	if got := s.trigger(t, order{Job: "report", Key: "k"}); got != want {
		t.Errorf("with a record: %+v, want %+v", got, want)
	}
	one, two := s.trigger(t, order{Job: "report"}), s.trigger(t, order{Job: "report"})
	if !one.New || !two.New || one.Slot == two.Slot {
		t.Errorf("without a key: %+v and %+v, want two runs", one, two)
	}
}

// Lateness and the deadline of the job would count from the time in the past.
func TestTriggerForATimeThatHasPassedIsDueWhenItIsOrdered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	j := job.Job{Name: "report", Schedule: "@hourly", Deadline: time.Minute}
	revision := s.define(t, plans.Definition{Job: j})
	if got := s.trigger(t, order{Job: "report", Key: "k", At: time.Now().Add(-24 * time.Hour)}); !got.New || !got.Due.IsZero() {
		t.Errorf("it is %+v, want a new run that is due now", got)
	}
	all := s.waiting(t)
	if len(all) != 1 || !all[0].Message.Due.IsZero() {
		t.Fatalf("waiting: %+v, want one without a due time", all)
	}
	d := core.Delivery{Message: all[0].Message, Published: all[0].Published, Count: 1}
	if by, ok := core.StartBy(d, plans.Entry{Revision: revision, Definition: plans.Definition{Job: j}}); !ok || !by.After(time.Now()) {
		t.Errorf("it must start by %v, want a minute from now", by)
	}
}

func TestTriggerLaterIsOneTimerForOneKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	slot, due := job.Slot{Job: "report", Token: "k"}, time.Now().Add(time.Hour).UTC()
	o := order{Job: "report", Key: "k", At: due, Payload: json.RawMessage(`{"n":1}`)}
	want := client.Run{Slot: slot, New: true, State: job.Pending, Queue: "default", Due: due}
	if got := s.trigger(t, o); got != want {
		t.Errorf("first: %+v, want %+v", got, want)
	}
	want.New = false
	for _, again := range []order{o, {Job: "report", Key: "k"}, {Job: "report", Key: "k", At: due.Add(time.Hour)}} {
		if got := s.trigger(t, again); got != want {
			t.Errorf("%+v: %+v, want %+v", again, got, want)
		}
	}
	if all := s.waiting(t); len(all) != 1 || !all[0].Timer || !all[0].Due.Equal(due) {
		t.Errorf("waiting: %+v", all)
	}

	// The job gets another queue: the same order moves the timer.
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "other"}})
	want.Queue, want.MovedFrom = "other", "default"
	if got := s.trigger(t, o); got != want {
		t.Errorf("after an edit of the queue: %+v, want %+v", got, want)
	}
	timer, _, err := s.store.Timers().Read(t.Context(), slot)
	if err != nil || timer.Queue != "other" || !timer.Due.Equal(due) || string(timer.Payload) != `{"n":1}` {
		t.Errorf("moved to %+v, %v", timer, err)
	}
	want.MovedFrom = ""
	if got := s.trigger(t, o); got != want {
		t.Errorf("once more: %+v, want %+v", got, want)
	}

	// An operator cancels the run, which is its outcome.
	s.record(t, slot, job.Cancelled)
	if err := s.store.Timers().Cancel(t.Context(), slot); err != nil {
		t.Fatal(err)
	}
	if got := s.trigger(t, o); got.New || got.State != job.Cancelled || len(s.waiting(t)) > 0 {
		t.Errorf("after a cancel: %+v, waiting %+v", got, s.waiting(t))
	}
}

// The run's message waits in a queue without workers. The same order publishes one in the new
// queue. A worker that receives the first message finds the run's record. The run stays whole although
// the job is split now.
func TestTriggerMovesARunFromADeadQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "dead"}})
	o := order{Job: "report", Key: "k", At: time.Now().Add(300 * time.Millisecond)}
	s.trigger(t, o)
	natstest.Eventually(t, "the timer to fire", func() bool {
		all := s.waiting(t)
		return len(all) == 1 && !all[0].Timer && all[0].Queue == "dead"
	})
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "alive", Shards: 2}})
	s.trigger(t, o)
	all := s.waiting(t)
	if len(all) != 2 || all[0].Queue != "dead" || all[1].Queue != "alive" || all[0].Slot != all[1].Slot {
		t.Errorf("waiting: %+v", all)
	}
}

// A run that waits for a worker has no record, and a fired timer has no message ID. An order with the
// same key finds the run all the same, now and later.
// The stream folds the message that would move the run, until its duplicate window is over.
func TestTriggerNamesTheQueueThatAYoungRunWaitsIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "former"}})
	o := order{Job: "report", Key: "k"}
	s.trigger(t, o)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly", Queue: "new"}})
	want := client.Run{Slot: job.Slot{Job: "report", Token: "k"}, State: job.Pending, Queue: "former"}
	if got := s.trigger(t, o); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	many, err := s.TriggerMany(t.Context(), "report", []client.TriggerOptions{o.options()})
	if err != nil || many[0].Queue != "former" || many[0].MovedFrom != "" || many[0].New {
		t.Errorf("among others: %+v, %v", many, err)
	}
	if all := s.waiting(t); len(all) != 1 || all[0].Queue != "former" {
		t.Errorf("waiting: %+v", all)
	}
}

func TestTriggerFindsARunThatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	fired := order{Job: "report", Key: "fired", At: time.Now().Add(300 * time.Millisecond), Payload: json.RawMessage(`{"n":1}`)}
	s.trigger(t, fired)
	s.trigger(t, order{Job: "report", Key: "now", Payload: json.RawMessage(`{"n":1}`)})
	natstest.Eventually(t, "the timer to fire", func() bool {
		all := s.waiting(t)
		return len(all) == 2 && !all[0].Timer && !all[1].Timer
	})
	later := time.Now().Add(time.Hour)
	for _, again := range []order{
		{Job: "report", Key: "fired"}, {Job: "report", Key: "fired", At: later},
		{Job: "report", Key: "now"}, {Job: "report", Key: "now", At: later},
	} {
		again.Payload = json.RawMessage(`{"n":2}`)
		if got := s.trigger(t, again); got.New || got.State != job.Pending {
			t.Errorf("%s again, at %v: %+v, want the run that waits", again.Key, again.At, got)
		}
		many, err := s.TriggerMany(t.Context(), "report", []client.TriggerOptions{again.options()})
		if err != nil || many[0].New {
			t.Errorf("%s again with others: %+v, %v", again.Key, many, err)
		}
	}
	if all := s.waiting(t); len(all) != 2 {
		t.Errorf("%d messages and timers wait, want 2: %+v", len(all), all)
	}
}

// The stream has forgotten the message ID of a run that waits for long.
func TestTriggerFindsARunThatWaitsForLongerThanTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	js := s.server.JetStream()
	s.trigger(t, order{Job: "report", Key: "young"})
	st, err := js.Stream(t.Context(), s.store.SlotStream())
	if err != nil {
		t.Fatal(err)
	}
	young, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	old := &nats.Msg{Subject: young.Subject, Header: nats.Header{}, Data: young.Data}
	for name, values := range young.Header {
		if name != nats.MsgIdHdr {
			old.Header.Set(name, strings.ReplaceAll(values[0], "@young", "@old"))
		}
	}
	if _, err := js.PublishMsg(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	later := client.Attach(attach.Parts{
		Jobs: s.store.Jobs(), Ledger: s.store.Ledger(), Slots: s.store.Slots(), Timers: s.store.Timers(), Fleet: s.store, News: s.store,
		Settings: s.store.Settings(), Operator: "alice@laptop",
		Now: func(ctx context.Context) (time.Time, error) {
			now, err := s.store.Time(ctx)
			return now.Add(job.DefaultDuplicates), err
		},
	})
	if got, err := later.Trigger(t.Context(), "report", client.TriggerOptions{Key: "old"}); err != nil || got.New {
		t.Errorf("the same key: %+v, %v, want the run that waits", got, err)
	}
	if got, err := later.TriggerMany(t.Context(), "report", []client.TriggerOptions{{Key: "old"}}); err != nil || got[0].New {
		t.Errorf("the same key, among others: %+v, %v", got, err)
	}
	if all := s.waiting(t); len(all) != 2 {
		t.Errorf("%d messages wait, want 2: %+v", len(all), all)
	}
}

func TestTriggerIsNewForOneOfManyRacers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	for _, o := range []order{{Job: "report", Key: "now"}, {Job: "report", Key: "later", At: time.Now().Add(time.Hour)}} {
		var group sync.WaitGroup
		var fresh atomic.Int32
		for range 8 {
			group.Go(func() {
				switch got, err := s.Trigger(t.Context(), o.Job, o.options()); {
				case err != nil:
					t.Error(err)
				case got.New:
					fresh.Add(1)
				}
			})
		}
		group.Wait()
		if n := fresh.Load(); n != 1 {
			t.Errorf("%s: %d of 8 were new", o.Key, n)
		}
	}
	if all := s.waiting(t); len(all) != 2 {
		t.Errorf("waiting: %+v", all)
	}
}

func TestTriggerSettlesAnUnansweredOrder(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s := siteAt(t, server, server.ClientURL())
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	proxy := natstest.NewProxy(t, server.ClientURL())
	far := siteAt(t, server, proxy.URL())
	orders := []order{{Job: "report", Key: "now"}, {Job: "report", Key: "later", At: time.Now().Add(time.Hour)}}
	for _, o := range orders {
		proxy.Deafen()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := far.Trigger(ctx, o.Job, o.options()); !errors.Is(err, job.ErrUnknown) {
			t.Errorf("%s: %v, want unknown", o.Key, err)
		}
		cancel()
		proxy.Heal()
		if _, err := far.Trigger(t.Context(), o.Job, o.options()); err != nil {
			t.Errorf("%s, again: %v", o.Key, err)
		}
	}
	if all := s.waiting(t); len(all) != len(orders) {
		t.Errorf("waiting: %+v", all)
	}
}

func TestTriggerOfNoSuchJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if _, err := s.Trigger(t.Context(), "missing", client.TriggerOptions{}); !errors.Is(err, job.ErrNotFound) || !strings.Contains(err.Error(), "job missing") {
		t.Errorf("got %v", err)
	}
}

func TestTriggerRefusesInvalidOrders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for what, o := range map[string]order{
		"job ":                  {},
		"job":                   {Job: "a.b"},
		"token":                 {Job: "report", Key: "a\nb"},
		"token \" x\"":          {Job: "report", Key: " x"},
		"129 bytes":             {Job: "report", Key: strings.Repeat("x", 129)},
		"not UTF-8":             {Job: "report", Key: "\xff"},
		"/r2":                   {Job: "report", Key: "x/r2"},
		"not JSON":              {Job: "report", Payload: json.RawMessage("{")},
		"262145 bytes":          {Job: "report", Payload: json.RawMessage(`"` + strings.Repeat("x", 256<<10-1) + `"`)},
		"2200-01-01T00:00:00Z,": {Job: "report", At: stream.LatestTimer},
	} {
		_, err := s.Trigger(t.Context(), o.Job, o.options())
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error()+",", what) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("want an error of one line about %s, got %v", what, err)
		}
	}
}

func TestTriggerPassesKeysAndPayloadsUnchanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	queue, err := s.store.Slots().Queue(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	fired, err := s.store.Timers().Queue(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	rapid.Check(t, func(t *rapid.T) {
		n++
		key := rapid.StringN(0, 100, 100).Filter(func(s string) bool { return job.ValidateToken(s+"!") == nil }).Draw(t, "key") + "!" + fmt.Sprint(n)
		text, _ := json.Marshal(map[string]string{rapid.String().Draw(t, "member"): rapid.String().Draw(t, "value")})
		o := order{Job: "report", Key: key, Payload: append([]byte(" "), text...)}
		source := queue
		if n%20 == 0 { // later than it takes to set a timer
			o.At, source = time.Now().Add(500*time.Millisecond), fired
		}
		if _, err := s.Trigger(context.Background(), o.Job, o.options()); err != nil {
			t.Fatal(err)
		}
		m, err := source.Next(jetstream.FetchPriorityGroup(layout.WorkerGroup))
		if err != nil {
			t.Fatal(err)
		}
		_ = m.Ack()
		got, err := core.ParseMessage(m.Headers())
		if err != nil || got.Slot != (job.Slot{Job: "report", Token: key}) || string(m.Data()) != string(o.Payload) {
			t.Fatalf("triggered %q with %q, got %+v with %q, %v", key, o.Payload, got, m.Data(), err)
		}
	})
}

func TestErrorsNameTheJobAndNoBucket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for what, ask := range map[string]func() error{
		"job":     func() error { _, err := s.Job(t.Context(), "nosuch"); return err },
		"next":    func() error { _, err := s.Next(t.Context(), "nosuch"); return err },
		"pause":   func() error { _, err := s.Pause(t.Context(), "nosuch"); return err },
		"resume":  func() error { _, err := s.Resume(t.Context(), "nosuch", client.ResumeOptions{}); return err },
		"release": func() error { _, err := s.Release(t.Context(), "nosuch"); return err },
		"remove":  func() error { return s.Remove(t.Context(), "nosuch", client.RemoveOptions{}) },
		"trigger": func() error {
			_, err := s.Trigger(t.Context(), "nosuch", client.TriggerOptions{})
			return err
		},
		"trigger many": func() error {
			_, err := s.TriggerMany(t.Context(), "nosuch", []client.TriggerOptions{{}})
			return err
		},
		"wait": func() error { _, err := s.Wait(t.Context(), "nosuch:2026-11-21T07:00:00Z"); return err },
	} {
		if err := ask(); !errors.Is(err, job.ErrNotFound) || err.Error() != "job nosuch: not found" {
			t.Errorf("%s: %q", what, err)
		}
	}
}
