package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/intake"
	"github.com/cronce-io/cronce/internal/fleet/registry"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// fixture is a namespace with a registry, and a stream ORDERS.
type fixture struct {
	*testing.T
	js       jetstream.JetStream
	store    *kv.Store
	view     *registry.View
	revision uint64

	mu      sync.Mutex
	entries map[string]plans.Entry // as the registry's leader has them
	log     strings.Builder
}

func newFixture(t *testing.T, edit ...func(*server.Options)) *fixture {
	t.Parallel()
	js := natstest.JetStream(t, natstest.Connect(t, natstest.Run(t, edit...).ClientURL()))
	store := kvtest.Open(t, js, kv.Options{})
	return &fixture{T: t, js: js, store: store, view: registry.NewView(store.Jobs(), func(string) bool { return false }), entries: map[string]plans.Entry{}}
}

func (f *fixture) stream(cfg jetstream.StreamConfig) jetstream.Stream {
	f.Helper()
	if cfg.Name == "" {
		cfg.Name = "ORDERS"
	}
	if cfg.Subjects == nil {
		cfg.Subjects = []string{strings.ToLower(cfg.Name) + ".>"}
	}
	s, err := f.js.CreateStream(f.Context(), cfg)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// job writes a definition to the registry and the View, as a file does.
func (f *fixture) job(j job.Job, edit func(*plans.Definition)) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := j.Validate(); err != nil {
		f.Fatal(err)
	}
	now, err := f.store.Time(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	var old *plans.Entry
	if e, ok := f.entries[j.Name]; ok {
		old = &e
	}
	d, change, err := plans.Upsert(old, j, plans.OwnerFile, "test", true)
	if change == plans.Unchanged && old != nil {
		d.Since = old.Since()
	}
	if edit != nil {
		edit(&d)
	}
	data, failed := json.Marshal(d)
	if err := errors.Join(err, failed); err != nil {
		f.Fatal(err)
	}
	f.revision++
	e, err := plans.DecodeEntry(data, f.revision, now)
	if err != nil {
		f.Fatal(err)
	}
	f.entries[j.Name] = e
	f.view.Apply(plans.RegistryEvent{Name: j.Name, Revision: f.revision, Entry: e})
}

func (f *fixture) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	delete(f.entries, name)
	f.view.Apply(plans.RegistryEvent{Name: name, Revision: f.revision, Deleted: true})
}

func (f *fixture) read(_ context.Context, name string) (plans.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.entries[name]
	if !ok {
		return e, job.ErrNotFound
	}
	return e, nil
}

func (f *fixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

func (f *fixture) says(text string) {
	f.Helper()
	f.eventually("a log of "+text, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Contains(f.log.String(), text)
	})
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	natstest.Eventually(f, what, ok)
}

// run starts the intake of a producer. It ends with the test, or at stop.
func (f *fixture) run() (stop func()) {
	i := intake.New(intake.Config{
		Node: "p1", Jobs: f.view.Messaged, Slots: f.store.Slots(), Broker: f.store, Logger: slog.New(slog.NewTextHandler(f, nil)),
		Open:  func(ctx context.Context, c core.OnConsumer) (intake.Feed, error) { return f.store.OpenOn(ctx, c) },
		Names: func(name string) []string { return layout.OnConsumers(f.store.Namespace, name) },
		Read:  f.read, Horizon: 24 * time.Hour,
		Now: func() time.Time { return time.Now().Add(time.Minute) }, // what is stored when a plan ends is settled at once
	})
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { i.Run(ctx) })
	stop = func() { cancel(); ended.Wait() }
	f.Cleanup(stop)
	return stop
}

func (f *fixture) publish(subject, data string, opts ...jetstream.PublishOpt) uint64 {
	f.Helper()
	ack, err := f.js.Publish(f.Context(), subject, []byte(data), opts...)
	if err != nil {
		f.Fatal(err)
	}
	return ack.Sequence
}

// slots returns the messages in the stream of slots, by slot.
func (f *fixture) slots() map[string]stream.WaitingSlot {
	f.Helper()
	all := map[string]stream.WaitingSlot{}
	for w, err := range f.store.Slots().Waiting(f.Context(), stream.WaitingFilter{}) {
		if err != nil {
			f.Fatal(err)
		}
		if _, twice := all[w.Slot.ID()]; twice {
			f.Errorf("%s has two messages", w.Slot)
		}
		all[w.Slot.ID()] = w
	}
	return all
}

func (f *fixture) wait(ids ...string) map[string]stream.WaitingSlot {
	f.Helper()
	slices.Sort(ids)
	f.eventually(fmt.Sprintf("%v", ids), func() bool { return len(f.slots()) >= len(ids) })
	all := f.slots()
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, ids) {
		f.Fatalf("slots %v, want %v", got, ids)
	}
	return all
}

// consumer returns the only consumer of the job on the stream. It returns nil if there is none, or
// more than one.
func (f *fixture) consumer(stream, name string) *jetstream.ConsumerInfo {
	var found []*jetstream.ConsumerInfo
	for _, consumer := range layout.OnConsumers("cronce", name) {
		if c, err := f.js.Consumer(f.Context(), stream, consumer); err == nil {
			found = append(found, c.CachedInfo())
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// id returns the slot ID of a message that has no ID of its own.
func (f *fixture) id(s jetstream.Stream, sequence uint64) string {
	i := s.CachedInfo()
	return "charge:@" + core.StreamEvent{Stream: i.Config.Name, Created: i.Created, Sequence: sequence}.Token()
}

var charge = job.Job{Name: "charge", On: job.On{Stream: "ORDERS", Subject: "orders.paid"}, Queue: "money"}

func TestEachMessageIsARunWithItsDataAsPayload(t *testing.T) {
	f := newFixture(t)
	s := f.stream(jetstream.StreamConfig{})
	f.publish("orders.paid", "before the job") // of no job
	f.job(charge, nil)
	f.run()
	bytes := string([]byte{0, 1, 0xff, '\n'})
	f.publish("orders.made", "of another subject")
	f.publish("orders.paid", bytes, jetstream.WithMsgID("order-17"))
	seq := f.publish("orders.paid", `{"n":2}`)
	f.publish("orders.paid", "", jetstream.WithMsgID("empty"))
	all := f.wait("charge:@order-17", f.id(s, seq), "charge:@empty")
	for id, want := range map[string]string{"charge:@order-17": bytes, f.id(s, seq): `{"n":2}`, "charge:@empty": ""} {
		w := all[id]
		if string(w.Payload) != want || w.Queue != "money" || w.Node != "p1" || w.JobRevision != 1 || w.Due.IsZero() || w.Due.After(w.Published) {
			t.Errorf("%s: %+v with %q, want %q", id, w.Message, w.Payload, want)
		}
	}
	f.eventually("the acks", func() bool {
		c := f.consumer("ORDERS", "charge")
		return c != nil && c.NumAckPending == 0 && c.NumPending == 0
	})
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != 5 {
		t.Errorf("the stream has %d messages, %v, want all 5: it is the user's stream", info.State.Msgs, err)
	}
}

// An ID may have characters that a token may not have.
func TestAnyMessageIDNamesARun(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	for _, id := range []string{strings.Repeat("x", 500), "order/r2", "order#1of2", "\xff\xfe"} {
		f.publish("orders.paid", id, jetstream.WithMsgID(id))
	}
	f.eventually("four slots", func() bool { return len(f.slots()) == 4 })
	for id := range f.slots() {
		if !strings.HasPrefix(id, "charge:@sha256-") {
			t.Errorf("slot %s", id)
		}
	}
}

func TestAMessageThatIsTooLargeIsARunThatIsRecordedAsFailed(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	f.publish("orders.paid", strings.Repeat("x", job.MaxPayload), jetstream.WithMsgID("largest"))
	f.publish("orders.paid", strings.Repeat("x", job.MaxPayload+1), jetstream.WithMsgID("larger"))
	all := f.wait("charge:@largest", "charge:@larger")
	if w := all["charge:@largest"]; len(w.Payload) != job.MaxPayload || w.Refused != "" {
		t.Errorf("largest: %d bytes (%s)", len(w.Payload), w.Refused)
	}
	w := all["charge:@larger"]
	if len(w.Payload) != 0 || !strings.Contains(w.Refused, "262145 bytes") {
		t.Errorf("larger: %d bytes (%s)", len(w.Payload), w.Refused)
	}
	step := core.Decide(core.Delivery{Message: w.Message, Published: w.Published}, core.View{Now: w.Published, Horizon: time.Hour, Self: "A", Entry: &plans.Entry{Definition: plans.Definition{Job: charge}}})
	if step.Action != core.End || step.Record.State != job.Failed || step.Record.Error != w.Refused {
		t.Errorf("a worker records %s (%s), want failed", step.Record.State, step.Record.Error)
	}
}

// One of three producers stops.
func TestEachMessageIsOneSlotAmongManyProducers(t *testing.T) {
	f := newFixture(t)
	s := f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	f.run()
	stop := f.run()
	const n = 500
	want := map[string]bool{}
	for i := range n {
		if i == n/2 {
			stop()
		}
		want[f.id(s, f.publish("orders.paid", "x"))] = true
	}
	f.eventually("all of them", func() bool { // counted, since listing hundreds again and again takes long
		slots, err := f.js.Stream(t.Context(), f.store.SlotStream())
		return err == nil && slots.CachedInfo().State.Msgs >= n
	})
	if got := f.slots(); len(got) != n {
		t.Errorf("%d slots of %d messages", len(got), n)
	} else {
		for id := range got {
			if !want[id] {
				t.Errorf("slot %s of no message", id)
			}
		}
	}
}

func TestAMessageStartsAllShardsOfASplitJob(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	split := charge
	split.Shards = 2
	f.job(split, nil)
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a#1of2", "charge:@a#2of2")
}

func TestAPausedJobTakesNoMessagesAndLosesNone(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
	pause := func(paused bool) { f.job(charge, func(d *plans.Definition) { d.Paused = paused }) }
	pause(true)
	f.eventually("no pull request", func() bool { c := f.consumer("ORDERS", "charge"); return c != nil && c.NumWaiting == 0 })
	f.publish("orders.paid", "x", jetstream.WithMsgID("b"))
	f.wait("charge:@a")
	pause(false)
	f.wait("charge:@a", "charge:@b")
}

// During the pause, two messages of the old subject are stored, and five of the new one before the edit.
func TestAnEditDuringAPauseLosesNoMessagesAndRunsNoEarlierOnes(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
	f.job(charge, func(d *plans.Definition) { d.Paused = true })
	f.eventually("no pull request", func() bool { c := f.consumer("ORDERS", "charge"); return c != nil && c.NumWaiting == 0 })
	for i := range 5 {
		f.publish("orders.made", "x", jetstream.WithMsgID(fmt.Sprint("before", i)))
	}
	f.publish("orders.paid", "x", jetstream.WithMsgID("b"))
	f.publish("orders.paid", "x", jetstream.WithMsgID("c"))
	edited := charge
	edited.On.Subject = "orders.made"
	f.job(edited, nil)
	f.publish("orders.paid", "x", jetstream.WithMsgID("late"))
	f.publish("orders.made", "x", jetstream.WithMsgID("d"))
	f.job(edited, func(d *plans.Definition) { d.Paused = false })
	f.wait("charge:@a", "charge:@b", "charge:@c", "charge:@d")
	f.eventually("the old plan's consumer to go", func() bool {
		c := f.consumer("ORDERS", "charge")
		return c != nil && c.Config.FilterSubject == "orders.made" && c.NumPending == 0 && c.NumAckPending == 0
	})
	f.wait("charge:@a", "charge:@b", "charge:@c", "charge:@d")
}

// Interest retention keeps a message only while a consumer wants it.
func TestAnEditOnAnInterestStreamLosesNothing(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{Retention: jetstream.InterestPolicy})
	f.job(charge, nil)
	stop := f.run()
	f.eventually("the consumer", func() bool { return f.consumer("ORDERS", "charge") != nil })
	stop()
	f.publish("orders.paid", "x", jetstream.WithMsgID("before"))
	all := charge
	all.On.Subject = "orders.*"
	f.job(all, nil)
	f.publish("orders.paid", "x", jetstream.WithMsgID("after"))
	f.run()
	f.wait("charge:@after", "charge:@before")
	f.eventually("the new plan's consumer", func() bool {
		c := f.consumer("ORDERS", "charge")
		return c != nil && c.Config.FilterSubject == "orders.*"
	})
	f.publish("orders.made", "x", jetstream.WithMsgID("made"))
	f.wait("charge:@after", "charge:@before", "charge:@made")
}

func TestAnEditOnAWorkQueueIsFollowedAlthoughBothPlansMatchASubject(t *testing.T) {
	f := newFixture(t)
	work := f.stream(jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy})
	f.job(charge, nil)
	stop := f.run()
	f.eventually("the consumer", func() bool { return f.consumer("ORDERS", "charge") != nil })
	stop()
	f.publish("orders.paid", "x", jetstream.WithMsgID("before"))
	all := charge
	all.On.Subject = "orders.*"
	f.job(all, nil)
	f.publish("orders.paid", "x", jetstream.WithMsgID("after"))
	f.run()
	f.wait("charge:@after", "charge:@before")
	f.eventually("the queue to be empty", func() bool { i, err := work.Info(t.Context()); return err == nil && i.State.Msgs == 0 })
}

// The stream is deleted and created again, so its sequences begin again.
func TestAStreamThatIsCreatedAgainHasNewRuns(t *testing.T) {
	f := newFixture(t)
	first := f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	f.run()
	one := f.id(first, f.publish("orders.paid", "x"))
	f.wait(one)
	if err := f.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	second := f.stream(jetstream.StreamConfig{})
	two := f.id(second, f.publish("orders.paid", "x"))
	f.wait(one, two)
}

func TestAMissingStreamIsLoggedAndFollowedWhenItExists(t *testing.T) {
	f := newFixture(t)
	f.job(charge, nil)
	f.run()
	f.says("stream ORDERS: not found")
	f.stream(jetstream.StreamConfig{})
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
}

func TestAnErrorOfTheStreamIsLogged(t *testing.T) {
	f := newFixture(t)
	work := f.stream(jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy})
	if _, err := work.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "mine", FilterSubject: "orders.paid", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	f.job(charge, nil)
	other := charge
	other.Name, other.On.Subject = "elsewhere", "nothing.of.it"
	f.job(other, nil)
	own := charge
	own.Name, own.On = "own", job.On{Stream: "cronce_slots", Subject: ">"}
	f.job(own, nil)
	f.run()
	f.says("filtered consumer not unique")
	f.says("subject nothing.of.it: stream ORDERS has no such subject: it has orders.>")
	f.says("stream cronce_slots: it is this namespace's own")
	if err := work.DeleteConsumer(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
	f.eventually("the queue to be empty", func() bool { i, err := work.Info(t.Context()); return err == nil && i.State.Msgs == 0 })
}

func TestAnEditOfTheSubjectOrTheStreamIsFollowed(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	f.stream(jetstream.StreamConfig{Name: "BILLS"})
	f.job(charge, nil)
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
	edited := charge
	edited.On.Subject = "orders.*"
	f.job(edited, nil)
	f.eventually("the subject", func() bool {
		c := f.consumer("ORDERS", "charge")
		return c != nil && c.Config.FilterSubject == "orders.*"
	})
	f.publish("orders.made", "x", jetstream.WithMsgID("b"))
	f.wait("charge:@a", "charge:@b")
	edited.On = job.On{Stream: "BILLS", Subject: "bills.>"}
	f.job(edited, nil)
	f.eventually("the old consumer to go", func() bool { return f.consumer("ORDERS", "charge") == nil && f.consumer("BILLS", "charge") != nil })
	f.publish("orders.made", "x", jetstream.WithMsgID("c"))
	f.publish("bills.x", "x", jetstream.WithMsgID("d"))
	f.wait("charge:@a", "charge:@b", "charge:@d")
	f.remove("charge")
	f.eventually("the consumer to go with the job", func() bool { return f.consumer("BILLS", "charge") == nil })
}

// An older program had one consumer for all plans. The consumer gets metadata and keeps its position.
func TestTheConsumerOfAnOlderProgramIsAdopted(t *testing.T) {
	f := newFixture(t)
	s := f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: layout.OnConsumers("cronce", "charge")[0], FilterSubject: "orders.paid", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	seq := f.publish("orders.paid", "x")
	f.run()
	f.wait(fmt.Sprintf("charge:@%d", seq))
	if c := f.consumer("ORDERS", "charge"); c == nil || c.Config.DeliverPolicy != jetstream.DeliverAllPolicy {
		t.Errorf("got %+v, want the consumer that was there", c)
	}
}

// Another producer has removed the consumer, and created that of the next plan under the same name.
func TestAConsumerOfTheSameNameIsNotRemoved(t *testing.T) {
	f := newFixture(t)
	f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	e := f.view.Messaged()[0]
	begin := func() core.OnConsumer {
		t.Helper()
		if err := f.store.BeginOn(t.Context(), "charge", layout.OnConsumers("cronce", "charge")[0], e.OnPlans()[0], e.Since()); err != nil {
			t.Fatal(err)
		}
		found, err := f.store.OnConsumers(t.Context(), "ORDERS", "charge")
		if err != nil || len(found) != 1 {
			t.Fatalf("%d consumers, %v, want one", len(found), err)
		}
		return found[0]
	}
	remove := func(c core.OnConsumer) {
		t.Helper()
		if err := f.store.RemoveOn(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	first := begin()
	remove(first)
	second := begin()
	remove(first)
	if c := f.consumer("ORDERS", "charge"); c == nil || !c.Created.Equal(second.Created) {
		t.Errorf("the consumer is %+v, want the second one", c)
	}
	remove(second)
	remove(second)
	if c := f.consumer("ORDERS", "charge"); c != nil {
		t.Errorf("the consumer is %+v, want none", c)
	}
}
