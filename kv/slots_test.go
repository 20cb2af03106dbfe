package kv_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

var at = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func publish(t *testing.T, s *kv.Store, queue string, m core.Message) (duplicate bool) {
	t.Helper()
	duplicate, err := s.Slots().Publish(within(t, 10*time.Second), queue, m, []byte(`{"n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	return duplicate
}

func waiting(t *testing.T, s *kv.Store, f stream.WaitingFilter) []stream.WaitingSlot {
	t.Helper()
	var all []stream.WaitingSlot
	for w, err := range s.Slots().Waiting(within(t, 10*time.Second), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

func TestCopiesOfASlotAreFoldedAndDelivered(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	m := core.Message{Slot: job.NewSlot("report", at), JobRevision: 7, Node: "n1", Due: at}
	if publish(t, s, "default", m) || !publish(t, s, "default", m) {
		t.Fatal("the first copy is new, the second a duplicate")
	}
	publish(t, s, "bulk", core.Message{Slot: job.NewSlot("index", at), Node: "n1"})

	all := waiting(t, s, stream.WaitingFilter{})
	if len(all) != 2 || all[0].Message != m || all[0].Queue != "default" || all[0].Sequence != 1 || all[0].Published.IsZero() {
		t.Fatalf("waiting: %+v", all)
	}
	for _, f := range []stream.WaitingFilter{{Queue: "bulk"}, {Job: "index"}, {Queue: "bulk", Job: "index"}} {
		if got := waiting(t, s, f); len(got) != 1 || got[0].Slot.Job != "index" {
			t.Errorf("%+v: %+v", f, got)
		}
	}

	c, err := s.Slots().Queue(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Next(jetstream.FetchMaxWait(10*time.Second), jetstream.FetchPriorityGroup(layout.WorkerGroup))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := core.ParseMessage(got.Headers())
	if err != nil || parsed != m || string(got.Data()) != `{"n":1}` || got.Subject() != "cronce.slot.default.report" {
		t.Fatalf("delivered %+v %q on %s, %v", parsed, got.Data(), got.Subject(), err)
	}
}

// Waiting skips messages that it cannot read. Every client may publish on the subjects.
func TestWaitingPassesOverWhatItCannotRead(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	for _, subject := range []string{"cronce.slot.default.report", "cronce.slot.default"} {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, s, "default", core.Message{Slot: job.NewSlot("report", at)})
	var good, bad int
	for w, err := range s.Slots().Waiting(t.Context(), stream.WaitingFilter{}) {
		switch {
		case errors.Is(err, job.ErrInvalid) && w.Sequence == 1 && w.Queue == "default":
			bad++
		case err == nil && w.Slot.Job == "report":
			good++
		default:
			t.Errorf("%+v, %v", w, err)
		}
	}
	if good != 1 || bad != 1 {
		t.Errorf("%d read, %d not; want one each", good, bad)
	}
}

func TestPublishWithoutAServerIsUnknown(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s := open(t, server.JetStream(), kv.Options{})
	if !s.Slots().Connected() {
		t.Error("not connected")
	}
	if _, err := s.Slots().Publish(within(t, 10*time.Second), "default", core.Message{Slot: job.NewSlot("report", at)}, nil); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	natstest.Eventually(t, "the connection to be lost", func() bool { return !s.Slots().Connected() })
	if _, err := s.Slots().Publish(within(t, 50*time.Millisecond), "default", core.Message{Slot: job.NewSlot("report", at.Add(time.Minute))}, nil); !errors.Is(err, job.ErrUnknown) {
		t.Errorf("got %v, want unknown", err)
	}
}

func TestPublishRefusesWhatIsNoQueue(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	for _, queue := range []string{"", "*", ">", "a.b", "a b"} {
		if _, err := s.Slots().Publish(t.Context(), queue, core.Message{Slot: job.NewSlot("report", at)}, nil); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("queue %q: %v", queue, err)
		}
		if _, err := s.Slots().Queue(t.Context(), queue); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
}

func TestQueueOfOtherSettingsIsRefusedThenMended(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	_, err := js.CreateConsumer(t.Context(), "cronce_slots", jetstream.ConsumerConfig{
		Durable: "default", FilterSubject: "cronce.slot.default.>", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Slots().Queue(t.Context(), "default")
	wantError(t, err, job.ErrMismatch, "queue default has ack wait 30s, not 20s", "cronce setup")
	if _, err := space.Setup(t.Context(), js, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Slots().Queue(t.Context(), "default"); err != nil {
		t.Error(err)
	}
}

func TestLedgerListFiltersAtTheBroker(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	ctx := within(t, 20*time.Second)
	const reports, others = 10_500, 20 // reports need more than one batch
	fill := func(name string, n int) {
		for i := range n {
			r := kvtest.Record(i, "n")
			r.Slot.Job = name
			data, err := r.MarshalJSON()
			if err == nil {
				_, err = js.PublishAsync("$KV.cronce_ledger."+r.Slot.Key(), data, jetstream.WithStallWait(10*time.Second))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
	}
	fill("report", reports)
	fill("report2", others)
	var last time.Time
	n := 0
	for e, err := range s.Ledger().List(ctx, kv.ListFilter{Job: "report"}) {
		if err != nil || e.Slot.Job != "report" || e.Revision == 0 || !e.Slot.At.Equal(at.Add(time.Duration(n)*time.Minute)) {
			t.Fatalf("entry %d: %+v, %v", n, e, err)
		}
		n, last = n+1, e.Time
	}
	if n != reports {
		t.Errorf("%d records of report, want %d", n, reports)
	}
	n = 0
	for e, err := range s.Ledger().List(ctx, kv.ListFilter{Since: last.Add(1)}) {
		if err != nil || e.Slot.Job != "report2" || !e.Time.After(last) {
			t.Fatalf("entry %d since %v: %+v, %v", n, last, e, err)
		}
		n++
	}
	if n != others {
		t.Errorf("%d records since %v, want %d", n, last, others)
	}
	for e, err := range s.Ledger().List(ctx, kv.ListFilter{Job: "none"}) {
		t.Errorf("a job without records has %+v, %v", e, err)
	}
	for e, err := range s.Ledger().List(ctx, kv.ListFilter{Job: "no.ne"}) {
		if !errors.Is(err, job.ErrInvalid) {
			t.Errorf("a bad name gives %+v, %v", e, err)
		}
	}
}

// A record of a newer version is reported by its key, and does not hide the other records.
func TestUnreadableRecordsAreNamed(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	bucket, err := js.KeyValue(t.Context(), "cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.PutString(t.Context(), kvtest.Record(0, "").Slot.Key(), `{"v":2}`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ledger().Write(t.Context(), kvtest.Record(1, "a"), 0); err != nil {
		t.Fatal(err)
	}
	_, rev, err := s.Ledger().Read(t.Context(), kvtest.Record(0, "").Slot)
	wantError(t, err, job.ErrVersion, "cronce_ledger/report.20261121T070000Z", "upgrade")
	if rev != 1 {
		t.Errorf("revision %d, want that of what is there", rev)
	}
	var good, bad int
	for _, err := range s.Ledger().List(t.Context(), kv.ListFilter{}) {
		if errors.Is(err, job.ErrVersion) {
			bad++
		} else if err == nil {
			good++
		}
	}
	if good != 1 || bad != 1 {
		t.Errorf("%d read, %d refused; want one each", good, bad)
	}
}

func TestExceptionalEventsAreKept(t *testing.T) {
	t.Parallel()
	nc := natstest.Run(t).Conn()
	js := natstest.JetStream(t, nc)
	s := open(t, js, kv.Options{})
	heard, err := nc.SubscribeSync("cronce.event.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []job.EventKind{job.EventSucceeded, job.EventFailed} {
		if err := s.EmitAndFlush(job.Event{Kind: kind, Job: "report"}); err != nil {
			t.Fatal(err)
		}
		if m, err := heard.NextMsg(10 * time.Second); err != nil || m.Subject != "cronce.event."+string(kind)+".report" {
			t.Fatalf("%s: %v, %v", kind, m, err)
		}
	}
	stream, err := js.Stream(t.Context(), "cronce_events")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the failure to be stored", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	})
}

// Most messages of the queue "rare" are far apart, and a long part of the stream is gone.
func TestWaitingSlotsAreTheSameFromTheNewestOn(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	store := kvtest.Open(t, server.JetStream(), kv.Options{})
	for i := range 6000 {
		queue := "default"
		if i%700 == 5 {
			queue = "rare"
		}
		name := []string{"a", "b"}[i%2]
		publish(t, store, queue, core.Message{Slot: job.NewSlot(name, at.Add(time.Duration(i)*time.Second)), Node: "n"})
	}
	slots, err := server.JetStream().Stream(t.Context(), store.SlotStream())
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"default.a", "default.b"} {
		if err := slots.Purge(t.Context(), jetstream.WithPurgeSubject(store.Namespace+".slot."+subject), jetstream.WithPurgeSequence(5500)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []stream.WaitingFilter{{}, {Job: "a"}, {Job: "b"}, {Queue: "rare"}, {Queue: "rare", Job: "b"}, {Job: "none"}} {
		list := func(newest bool) (ids []string) {
			f.Newest = newest
			for _, w := range waiting(t, store, f) {
				ids = append(ids, w.Slot.ID())
			}
			return ids
		}
		oldest, newest := list(false), list(true)
		if slices.Reverse(newest); !slices.Equal(oldest, newest) || len(oldest) == 0 != (f.Job == "none") {
			t.Errorf("%+v: %d slots from the oldest on, %d from the newest on", f, len(oldest), len(newest))
		}
	}
}
