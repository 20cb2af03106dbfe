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

// TestWorkQueueForgetsTheIDsOfAckedMessagesAtARestart is fact 1: the IDs of the
// duplicate window are only in memory, and a server that starts learns again
// those of messages that are still stored. In a cluster one restarted server is
// enough, once it leads, unless it has replayed what it had not yet put in a snapshot.
//
// On it stands: the message ID only spares the workers copies (producer). What
// makes a slot one is its record in the ledger, which is kept for the retention.
// When this fails, nothing of ours breaks; the window might then bear more.
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

// TestMessageInFlightIsRedeliveredAtOnceAfterALeaderChangeUnlessMarked is fact 2:
// what replicas and files know of a delivery is when the message was *stored*. So
// a server that takes over, or restarts, sees a message that was older than AckWait at
// its delivery as overdue, and delivers it to the next. A mark (in progress)
// writes down the true time.
//
// On it stands: package consumer marks every message as soon as it has it, and
// then every third of a lease; a mark that was lost with a leader costs a delivery,
// not a run, since claims decide. When this fails, the first mark may go.
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

// TestAckCountsFromAnySender is fact 3: an ack is matched by the message alone,
// not by the delivery. A client that held a message long ago removes it for the client that holds
// it now, and neither of them can tell: all their acks succeed.
//
// On it stands: invariant 6 (package consumer). Only a worker that wrote the record, or
// read it as final, acks; a worker that lost its claim says nothing. When this
// fails, acks may fence; the record decides all the same.
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

// TestDelayedNakWaitsForItsBackOffToo is fact 11: on a consumer with a BackOff
// the delay of a nak is added to the next step of it (less the first).
//
// On it stands: our queues have no BackOff, and kv refuses one that has; the
// worker gives slots back with a delay that it computed itself. When this fails,
// read again what a delay means before anything else uses it.
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

// TestSpentDeliveriesAreAnnouncedOnlyWhenAClientPulls is fact 12: that a message has
// reached MaxDeliver is found out when a client pulls. It then stays
// in the stream, and is not delivered any more. (With a MaxDeliver of 1 it is found
// out without: the count of deliveries lags by one.)
//
// On it stands: MaxDeliver is unlimited on our queues, and attempts are counted
// by claims (kv, package consumer). When this fails, MaxDeliver might bear more.
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

// TestAckedMessageStaysAWhileOnThreeReplicas is fact 16: on one server the
// answer to an ack comes after the message is gone; replicas agree on the ack,
// answer, and then agree on the removal. A queue that holds one message of a
// subject refuses the next one in between.
//
// On it stands: the slot stream has no limit by subject; overlap is decided by
// the ledger (kv). When this fails, such a limit might do for overlap.
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

// TestPurgeOfOneSubjectForgetsOtherMessagesInFlight is fact 20: when a client
// purges one of the subjects that a consumer takes, of which it has given a message
// out, and it has acked nothing yet that the stream still holds, then the next ack
// carries its floor over all that it had given out before. The server gives that to
// no client any more, though it stays in the stream. A message before the floor that is
// still stored prevents it, which a work queue never has.
//
// On it stands: internal/broker/stream/stranded.go and internal/fleet/sweep, which count such a message of a slot
// as none; and what is said of users' streams and of alerts, for which nothing of the
// kind can be done (internal/fleet/intake, internal/fleet/alert). When this fails, all of that may go.
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
