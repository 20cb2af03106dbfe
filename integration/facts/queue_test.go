package facts_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestWorkQueueForgetsTheIDsOfAckedMessagesAtARestart is fact 1: the server keeps the IDs of the
// duplicate window in memory only. When it starts, it reads those of the messages that are still stored.
// In a cluster it is enough that one server restarts and then leads, unless that server has replayed
// what was not in its snapshot yet.
//
// Decision: the message ID only saves workers from copies (producer). The slot's record in the ledger,
// which is kept for the retention, makes a slot run once. If the test fails, nothing breaks, and the
// window might be used for more.
func TestWorkQueueForgetsTheIDsOfAckedMessagesAtARestart(t *testing.T) {
	t.Parallel()
	forgets := func(t *testing.T, js jetstream.JetStream, name string, replicas int, restart func()) bool {
		s := queue(t, js, name, replicas)
		c := worker(t, s, jetstream.ConsumerConfig{})
		first := publish(t, js, name+".a", jetstream.WithMsgID("acked"))
		doubleAck(t, next(t, c))
		natstest.Eventually(t, "the acked message to go", func() bool { return messages(t, s) == 0 })
		publish(t, js, name+".a", jetstream.WithMsgID("stored"))
		if ack := publish(t, js, name+".a", jetstream.WithMsgID("acked")); !ack.Duplicate || ack.Sequence != first.Sequence {
			t.Fatalf("before the restart, again the acked one: %+v, want a duplicate of %d", ack, first.Sequence)
		}
		restart()
		if ack := publish(t, js, name+".a", jetstream.WithMsgID("stored")); !ack.Duplicate {
			t.Errorf("after the restart, again the stored one: %+v, want a duplicate", ack)
		}
		return !publish(t, js, name+".a", jetstream.WithMsgID("acked")).Duplicate
	}
	t.Run("on one server", func(t *testing.T) {
		t.Parallel()
		one := natstest.Run(t)
		js := one.JetStream()
		if !forgets(t, js, "fact1", 1, func() {
			one.Restart()
			reconnected(t, js)
		}) {
			t.Error("after the restart, again the acked one: a duplicate, want a new message")
		}
	})
	t.Run("on one of three servers", func(t *testing.T) {
		t.Parallel()
		c := natstest.RunCluster(t) // of its own, for the restart
		js := c.JetStream()
		for try := range 5 {
			name := fmt.Sprint("fact1-", try)
			if forgets(t, js, name, 3, func() {
				follower := c.Servers[0]
				if follower == c.Leader(name) {
					follower = c.Servers[1]
				}
				follower.Restart()
				natstest.Eventually(t, "the restarted server to catch up", func() bool {
					return follower.JetStreamIsStreamCurrent(server.DEFAULT_GLOBAL_ACCOUNT, name)
				})
				lead(t, js.Conn(), name, follower.Name())
			}) {
				return
			}
		}
		t.Error("after five restarts, again the acked one: a duplicate each time, want a new message")
	})
}

// reconnected waits until the client has found the restarted server.
func reconnected(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	natstest.Eventually(t, "the server to answer again", func() bool {
		_, err := js.AccountInfo(within(t, time.Second))
		return err == nil
	})
}

// TestMessageInFlightIsRedeliveredAtOnceAfterALeaderChangeUnlessMarked is fact 2: what replicas and files
// know of a delivery is when the message was *stored*. So if a message was older than AckWait at its
// delivery, a server that takes over or restarts regards it as overdue, and redelivers it at once. A mark
// (in progress) makes the true time known.
//
// Decision: package consumer marks each message soon after it arrives, and then every third of a lease.
// If a mark is lost with a leader, the message is redelivered, but the slot does not run again, because
// claims decide. If the test fails, the first mark may go.
func TestMessageInFlightIsRedeliveredAtOnceAfterALeaderChangeUnlessMarked(t *testing.T) {
	t.Parallel()
	const (
		ackWait = 12 * time.Second
		atOnce  = ackWait - 2*time.Second // takes 50 ms; the wait for an ack ends at ackWait
	)
	ask := func(t *testing.T, js jetstream.JetStream, replicas int, change func()) {
		s := queue(t, js, "fact2", replicas)
		c := worker(t, s, jetstream.ConsumerConfig{AckWait: ackWait})
		publish(t, js, "fact2.marked")
		publish(t, js, "fact2.unmarked")
		publish(t, js, "fact2.acked")
		stored := time.Now()
		natstest.Eventually(t, "messages older than AckWait", func() bool { return time.Since(stored) > ackWait })

		marked, unmarked, acked := next(t, c), next(t, c), next(t, c)
		if marked.Subject() != "fact2.marked" || unmarked.Subject() != "fact2.unmarked" {
			t.Fatalf("got %s and %s", marked.Subject(), unmarked.Subject())
		}
		delivered := time.Now()
		if _, err := js.Conn().Request(marked.Reply(), []byte("+WPI"), limit); err != nil {
			t.Fatal(err)
		}
		// The leader answers a mark before the replicas have it, but an ack only
		// after them, and what came before it too.
		doubleAck(t, acked)
		change()
		if m := next(t, c); m.Subject() != "fact2.unmarked" || time.Since(delivered) > atOnce {
			t.Fatalf("%s came again after %v, want the unmarked one before %v", m.Subject(), time.Since(delivered), atOnce)
		}
		// Files keep the time in seconds: it may be early by one.
		if m := next(t, c); m.Subject() != "fact2.marked" || time.Since(delivered) < ackWait-time.Second {
			t.Fatalf("%s came again after %v, want the marked one after %v", m.Subject(), time.Since(delivered), ackWait)
		}
	}
	t.Run("a restart of one server", func(t *testing.T) {
		t.Parallel()
		one := natstest.Run(t)
		js := one.JetStream()
		ask(t, js, 1, one.Restart)
	})
	t.Run("a change of leader among three", func(t *testing.T) {
		t.Parallel()
		js := onThree(t, "fact2")
		ask(t, js, 3, func() {
			if !stepDown(js.Conn(), "CONSUMER", "fact2.worker", "") {
				t.Fatal("the leader does not step down")
			}
		})
	})
}

// TestAckCountsFromAnySender is fact 3: the server matches an ack by the message, and not by the
// delivery. A client that held a message long ago removes it for the client that holds it now, and
// neither of them can tell: the acks of both succeed.
//
// Decision: invariant 6 (package consumer). A worker acks only if it wrote the record, or read it as
// final. A worker that lost its claim sends nothing. If the test fails, acks may fence, but the record
// still decides.
func TestAckCountsFromAnySender(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := queue(t, js, "fact3", 1)
	c := worker(t, s, jetstream.ConsumerConfig{AckWait: 200 * time.Millisecond})
	publish(t, js, "fact3.a")
	before := next(t, c)
	now := next(t, c)
	if meta, err := now.Metadata(); err != nil || meta.NumDelivered < 2 {
		t.Fatalf("the second holder has %+v, %v", meta, err)
	}
	doubleAck(t, before)
	if n := messages(t, s); n != 0 {
		t.Fatalf("%d messages after an ack of the holder before, want 0", n)
	}
	answer, err := js.Conn().Request(now.Reply(), []byte("+WPI"), limit)
	if err != nil || len(answer.Data) != 0 {
		t.Errorf("a mark for a message that is gone: %v, %v, want an empty answer", answer, err)
	}
	doubleAck(t, now)
}

// TestDelayedNakWaitsForItsBackOffToo is fact 11: on a consumer with a BackOff, the server adds the delay
// of a nak to the BackOff's next step, less its first one.
//
// Decision: our queues have no BackOff, and a queue that has one is refused (internal/broker/space). The
// worker computes the delay of each slot that it gives back. If the test fails, find out what a delay
// means before anything else uses it.
func TestDelayedNakWaitsForItsBackOffToo(t *testing.T) {
	t.Parallel()
	const first, second, delay = 200 * time.Millisecond, 2 * time.Second, 500 * time.Millisecond
	js := natstest.Run(t).JetStream()
	c := worker(t, queue(t, js, "fact11", 1), jetstream.ConsumerConfig{BackOff: []time.Duration{first, second}, MaxDeliver: -1})
	publish(t, js, "fact11.a")
	next(t, c)
	m, asked := next(t, c), time.Now()
	if err := m.NakWithDelay(delay); err != nil {
		t.Fatal(err)
	}
	next(t, c)
	// The timer of expiries may run a little early.
	if took, want := time.Since(asked), second-first+delay; took < want-100*time.Millisecond {
		t.Errorf("a nak with a delay of %v came back after %v, want %v", delay, took, want)
	}
}

// TestSpentDeliveriesAreAnnouncedOnlyWhenAClientPulls is fact 12: the server notices only when a client
// pulls that a message has reached MaxDeliver. The message then stays in the stream, and is not delivered
// any more. (With a MaxDeliver of 1 the server notices it without a pull, because its count of deliveries
// lags by one.)
//
// Decision: MaxDeliver is unlimited on our queues, and claims count the attempts (package consumer). If
// the test fails, MaxDeliver might be used.
func TestSpentDeliveriesAreAnnouncedOnlyWhenAClientPulls(t *testing.T) {
	t.Parallel()
	const ackWait = 200 * time.Millisecond
	js := natstest.Run(t).JetStream()
	deaf, witness := queue(t, js, "fact12", 1), queue(t, js, "witness12", 1)
	spent := func(s jetstream.Stream, wait time.Duration) (jetstream.Consumer, *nats.Subscription) {
		name := s.CachedInfo().Config.Name
		told, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + name + ".worker")
		if err != nil {
			t.Fatal(err)
		}
		c := worker(t, s, jetstream.ConsumerConfig{AckWait: wait, MaxDeliver: 2})
		publish(t, js, name+".a")
		next(t, c)
		next(t, c)
		return c, told
	}
	pull := func(c jetstream.Consumer) {
		if _, err := c.Fetch(1, jetstream.FetchMaxWait(limit)); err != nil {
			t.Fatal(err)
		}
	}
	c, told := spent(deaf, ackWait)
	w, witnessTold := spent(witness, 2*ackWait)
	pull(w)
	if _, err := witnessTold.NextMsg(limit); err != nil {
		t.Fatalf("no advisory came although a pull was waiting: %v", err)
	}
	if m, err := told.NextMsg(time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Fatalf("told without a pull: %v, %v", m, err)
	}
	pull(c)
	if _, err := told.NextMsg(limit); err != nil {
		t.Fatalf("no advisory came after a pull: %v", err)
	}
	if n := messages(t, deaf); n != 1 {
		t.Errorf("%d messages, want the one that is not delivered", n)
	}
}

// TestAckedMessageStaysAWhileOnThreeReplicas is fact 16: one server answers an ack after it has removed
// the message. Replicas agree on the ack, answer it, and then agree on the removal. In between, a queue
// that holds one message of each subject refuses the next one.
//
// Decision: the slot stream has no limit by subject, and the locks decide which slots may overlap. If the
// test fails, such a limit might do for overlap.
func TestAckedMessageStaysAWhileOnThreeReplicas(t *testing.T) {
	t.Parallel()
	refused := func(js jetstream.JetStream, replicas, tries int) (found bool) {
		s := stream(t, js, jetstream.StreamConfig{
			Name: "fact16", Subjects: []string{"fact16"}, Retention: jetstream.WorkQueuePolicy, Replicas: replicas,
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		})
		c := worker(t, s, jetstream.ConsumerConfig{})
		publish(t, js, "fact16")
		for range tries {
			doubleAck(t, next(t, c))
			_, err := js.Publish(within(t, limit), "fact16", nil)
			if code(err) == storeFailed {
				return true
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return false
	}
	if refused(natstest.Run(t).JetStream(), 1, 100) {
		t.Error("one server refused a message right after the ack of the one before")
	}
	if !refused(onThree(t, "fact16"), 3, 1000) {
		t.Error("three replicas never refused a message right after the ack of the one before")
	}
}

// TestPurgeOfOneSubjectForgetsOtherMessagesInFlight is fact 20: a consumer has messages of several
// subjects in flight, and the stream holds none that the consumer has acked. If a client then purges one
// of these subjects, the next ack moves the consumer's ack floor over all messages that were in flight.
// The server delivers these to no client any more, although they stay in the stream. A message before the
// floor that is still stored prevents that, but a work queue never has one.
//
// Decision: such a message of a slot counts as no message (internal/broker/stream/stranded.go,
// internal/fleet/sweep). For users' streams and for alerts nothing of the kind can be done
// (internal/fleet/intake, internal/fleet/alert). If the test fails, all of that may go.
func TestPurgeOfOneSubjectForgetsOtherMessagesInFlight(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	for name, c := range map[string]struct {
		retention jetstream.RetentionPolicy
		acked     int // messages before
		forgets   bool
	}{
		"fact20-queue":      {jetstream.WorkQueuePolicy, 1, true},
		"fact20-first":      {jetstream.LimitsPolicy, 0, true},
		"fact20-with-older": {jetstream.LimitsPolicy, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stream(t, js, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Retention: c.retention})
			w := worker(t, s, jetstream.ConsumerConfig{FilterSubject: name + ".>", AckWait: 200 * time.Millisecond})
			for range c.acked {
				publish(t, js, name+".a")
				doubleAck(t, next(t, w))
			}
			held := publish(t, js, name+".held")
			publish(t, js, name+".purged")
			natstest.Take(t, w, 2)
			if err := s.Purge(within(t, limit), jetstream.WithPurgeSubject(name+".purged")); err != nil {
				t.Fatal(err)
			}
			publish(t, js, name+".last")
			came := map[string]bool{}
			for !came[name+".last"] || !c.forgets && !came[name+".held"] {
				m := next(t, w)
				came[m.Subject()] = true
				doubleAck(t, m)
			}
			natstest.Eventually(t, "nothing in hand", func() bool {
				info, err := w.Info(within(t, limit))
				return err == nil && info.NumAckPending == 0 && info.NumPending == 0 && info.AckFloor.Stream >= held.Sequence
			})
			if _, err := s.GetMsg(within(t, limit), held.Sequence); err != nil || came[name+".held"] == c.forgets {
				t.Errorf("what was in hand came again: %v, want %v; and is it stored: %v", came[name+".held"], !c.forgets, err)
			}
		})
	}
}
