package intake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// suspended calls meanwhile before the next request that changes or deletes a consumer is sent, like a
// process that is suspended there.
type suspended struct {
	jetstream.JetStream
	meanwhile func()
}

func (s *suspended) once() {
	if f := s.meanwhile; f != nil {
		s.meanwhile = nil
		f()
	}
}

func (s *suspended) UpdateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	s.once()
	return s.JetStream.UpdateConsumer(ctx, stream, cfg)
}

func (s *suspended) DeleteConsumer(ctx context.Context, stream, consumer string) error {
	s.once()
	return s.JetStream.DeleteConsumer(ctx, stream, consumer)
}

// removeSuspended removes a consumer as a producer does that is suspended before its request.
func removeSuspended(t *testing.T, store *kv.Store, c core.OnConsumer, meanwhile func()) {
	t.Helper()
	other := store.WithFailDenied() // a copy
	other.JS = &suspended{other.JS, meanwhile}
	if err := other.RemoveOn(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestAConsumerForWhichAStreamHasNoRoomIsRefusedAsFull(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store, err := kv.Open(t.Context(), js, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}, MaxConsumers: 1}); err != nil {
		t.Fatal(err)
	}
	plan := plans.PastPlan{From: time.Now(), Plan: job.Plan{On: job.On{Stream: "A", Subject: "a"}}}
	for i, want := range []error{nil, job.ErrFull} {
		name := fmt.Sprint("job", i)
		if err := store.BeginOn(t.Context(), name, layout.OnConsumers("cronce", name)[0], plan, time.Now()); !errors.Is(err, want) {
			t.Errorf("consumer %d: %v, want %v", i+1, err, want)
		}
	}
}

// On an interest stream, a consumer that is deleted takes along all messages that are not acked.
func TestOldestQueuedIsTheTimeOfTheFirstMessageOfAWorkQueueOnly(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	store, err := kv.Open(t.Context(), js, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []jetstream.StreamConfig{
		{Name: "Q", Subjects: []string{"q"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "EMPTY", Subjects: []string{"e"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "L", Subjects: []string{"l"}},
	} {
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{"q", "q", "l"} {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	queue, err := js.Stream(t.Context(), "Q")
	if err != nil {
		t.Fatal(err)
	}
	first, err := queue.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]time.Time{"Q": first.Time, "EMPTY": {}, "L": {}, "NONE": {}} {
		if got, err := store.OldestQueued(t.Context(), stream); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", stream, got, err, want)
		}
	}
}

func TestAConsumerIsNotRemovedByAProducerThatWasSuspendedBeforeItsRequest(t *testing.T) {
	t.Parallel()
	for name, js := range map[string]jetstream.JetStream{"one server": natstest.Run(t).JetStream(), "three servers": natstest.RunCluster(t).JetStream()} {
		store, err := kv.Open(t.Context(), js, kv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.InterestPolicy} {
			stream, subject := strings.ToUpper(retention.String()), retention.String()+".paid"
			s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}, Retention: retention, Replicas: store.Settings().Replicas})
			if err != nil {
				t.Fatal(err)
			}
			first := core.OnConsumer{Stream: stream, Name: layout.OnConsumers("cronce", "charge")[0]}
			begin := func(since time.Time) time.Time {
				plan := plans.PastPlan{From: since, Plan: job.Plan{On: job.On{Stream: stream, Subject: subject}}}
				if err := store.BeginOn(t.Context(), "charge", first.Name, plan, since); err != nil {
					t.Fatal(err)
				}
				c, err := s.Consumer(t.Context(), first.Name)
				if err != nil {
					t.Fatal(err)
				}
				return c.CachedInfo().Created
			}
			first.Created = begin(time.Now().Add(-time.Hour))
			second := first
			removeSuspended(t, store, first, func() {
				if err := s.DeleteConsumer(t.Context(), first.Name); err != nil {
					t.Fatal(err)
				}
				second.Created = begin(time.Now())
				if _, err := js.Publish(t.Context(), subject, nil); err != nil {
					t.Fatal(err)
				}
			})
			c, err := s.Consumer(t.Context(), first.Name)
			if err != nil {
				t.Errorf("%s, %s: the second consumer: %v", name, stream, err)
				continue
			}
			if info := c.CachedInfo(); !info.Created.Equal(second.Created) || info.Config.InactiveThreshold != 0 {
				t.Errorf("%s, %s: got the consumer of %v with inactive threshold %v, want that of %v", name, stream, info.Created, info.Config.InactiveThreshold, second.Created)
			}
			natstest.Eventually(t, "the message in the second consumer", func() bool {
				info, err := c.Info(t.Context())
				return err == nil && info.NumPending == 1
			})
			if err := store.RemoveOn(t.Context(), second); err != nil {
				t.Error(err)
			}
			if _, err := s.Consumer(t.Context(), first.Name); !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Errorf("%s, %s: after its removal: %v", name, stream, err)
			}
		}
	}
}

// A work queue keeps what is not acked. So a consumer that is deleted there in place of another one, by a
// producer that was suspended before its request, is created again and delivers it.
func TestAConsumerOfAWorkQueueThatIsDeletedByMistakeLosesNoMessage(t *testing.T) {
	f := newFixture(t)
	s := f.stream(jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy})
	f.job(charge, nil)
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
	given := f.consumer("ORDERS", "charge")
	removeSuspended(t, f.store, core.OnConsumer{Stream: "ORDERS", Name: given.Name, Created: given.Created}, func() {
		if err := s.DeleteConsumer(t.Context(), given.Name); err != nil {
			t.Error(err)
		}
		if err := f.store.BeginOn(t.Context(), "charge", given.Name, f.view.Messaged()[0].OnPlans()[0], time.Now()); err != nil {
			t.Error(err)
		}
		f.publish("orders.paid", "x", jetstream.WithMsgID("b"))
	})
	f.publish("orders.paid", "x", jetstream.WithMsgID("c"))
	f.wait("charge:@a", "charge:@b", "charge:@c")
}

// The new consumer delivers all messages of the plan again. Each names the same slot as before.
func TestADeletedConsumerIsCreatedAgain(t *testing.T) {
	f := newFixture(t)
	s := f.stream(jetstream.StreamConfig{})
	f.job(charge, nil)
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("a"))
	f.wait("charge:@a")
	if err := s.DeleteConsumer(t.Context(), f.consumer("ORDERS", "charge").Name); err != nil {
		t.Fatal(err)
	}
	f.publish("orders.paid", "x", jetstream.WithMsgID("b"))
	f.wait("charge:@a", "charge:@b")
}

// One subject of the stream is purged after a producer died with pending messages. The server never
// delivers those of other subjects again (integration/facts). The fix of the operations page brings
// them back, and none twice.
func TestMessagesThatAPurgeHidComeBackWhenTheConsumerIsRemoved(t *testing.T) {
	f := newFixture(t)
	s := f.stream(jetstream.StreamConfig{})
	all := charge
	all.On.Subject = "orders.*"
	f.job(all, nil)
	e := f.view.Messaged()[0]
	if err := f.store.BeginOn(t.Context(), "charge", layout.OnConsumers("cronce", "charge")[0], e.OnPlans()[0], e.Since()); err != nil {
		t.Fatal(err)
	}
	taker, err := s.Consumer(t.Context(), f.consumer("ORDERS", "charge").Name)
	if err != nil {
		t.Fatal(err)
	}
	lost := f.publish("orders.paid", "x", jetstream.WithMsgID("lost"))
	f.publish("orders.made", "x", jetstream.WithMsgID("purged"))
	natstest.Take(t, taker, 2) // by a producer that dies
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject("orders.made")); err != nil {
		t.Fatal(err)
	}
	f.run()
	f.publish("orders.paid", "x", jetstream.WithMsgID("next"))
	f.wait("charge:@next")
	f.eventually("the ack floor to pass the lost message", func() bool {
		c := f.consumer("ORDERS", "charge")
		return c != nil && c.AckFloor.Stream > lost
	})
	if err := s.DeleteConsumer(t.Context(), f.consumer("ORDERS", "charge").Name); err != nil {
		t.Fatal(err)
	}
	f.wait("charge:@lost", "charge:@next")
}
