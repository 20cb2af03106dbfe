package facts_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestOneServerChecksTheRevisionFirstAndThreeTheMessageID is fact 6: if a write that names a revision and a
// message ID is repeated, it is a conflict on one server and a duplicate on three. If another write is in
// flight, three servers have two more answers: 10164 for a key, 10158 for an ID.
//
// Decision: writes at a revision have no message ID, since nonces tell whose write it was. 10164 is a
// conflict that settles nothing by itself, and after 10158 the message is published again. If the test
// fails, check how internal/broker/wire classifies the broker's errors.
func TestOneServerChecksTheRevisionFirstAndThreeTheMessageID(t *testing.T) {
	t.Parallel()
	retry := func(js jetstream.JetStream, replicas int) (*jetstream.PubAck, error) {
		stream(t, js, jetstream.StreamConfig{Name: "fact6", Subjects: []string{"fact6.>"}, Replicas: replicas})
		opts := []jetstream.PublishOpt{jetstream.WithMsgID("id"), jetstream.WithExpectLastSequencePerSubject(0)}
		publish(t, js, "fact6.a", opts...)
		return js.Publish(within(t, limit), "fact6.a", nil, opts...)
	}
	if ack, err := retry(natstest.Run(t).JetStream(), 1); code(err) != wrongLastSequence {
		t.Errorf("on one server: %+v, %v, want %d", ack, err, wrongLastSequence)
	}
	js := onThree(t, "fact6")
	if ack, err := retry(js, 3); err != nil || !ack.Duplicate {
		t.Errorf("on three servers: %+v, %v, want a duplicate", ack, err)
	}
	meets := func(what string, want jetstream.ErrorCode, opts func(n string) []jetstream.PublishOpt) {
		tries := 0
		natstest.Eventually(t, fmt.Sprintf("%s to meet %d", what, want), func() bool {
			tries++
			subject := "fact6." + strconv.Itoa(int(want)) + "." + strconv.Itoa(tries)
			errs := publishAll(t, js, []string{subject, subject, subject, subject}, opts(subject)...)
			return slices.ContainsFunc(errs, func(err error) bool { return code(err) == want })
		})
	}
	meets("writes to one key", wrongLastSequenceInFlight, func(string) []jetstream.PublishOpt {
		return []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(0)}
	})
	meets("copies of one message", duplicateInFlight, func(id string) []jetstream.PublishOpt {
		return []jetstream.PublishOpt{jetstream.WithMsgID(id)}
	})
}

// TestGuardCannotBeSharedByWritesInFlightOnThreeReplicas is fact 7: a write may depend on the revision of
// another key, its guard (such as a lease). One server stores any number of such writes that are in flight
// together. Three replicas refuse all but one at a time.
//
// Decision: claims and completions depend on the revision of their own record only, and a dead owner's
// writes are stopped by a takeover of each record (consumer, internal/fleet/node). If the test fails,
// consider one guard for all writes of a node: it would stop all writes of a dead node at once.
func TestGuardCannotBeSharedByWritesInFlightOnThreeReplicas(t *testing.T) {
	t.Parallel()
	refused := func(js jetstream.JetStream, replicas, rounds int) bool {
		stream(t, js, jetstream.StreamConfig{Name: "fact7", Subjects: []string{"fact7.>"}, Replicas: replicas})
		guarded := jetstream.WithExpectLastSequenceForSubject(publish(t, js, "fact7.guard").Sequence, "fact7.guard")
		for n := range 20 { // one at a time: that works
			publish(t, js, "fact7.alone."+strconv.Itoa(n), guarded)
		}
		for round := range rounds {
			subjects := make([]string, 100)
			for i := range subjects {
				subjects[i] = fmt.Sprintf("fact7.%d.%d", round, i)
			}
			for _, err := range publishAll(t, js, subjects, guarded) {
				if code(err) == wrongLastSequenceInFlight {
					return true
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return false
	}
	if refused(natstest.Run(t).JetStream(), 1, 3) {
		t.Error("one server refused guarded writes in flight")
	}
	if !refused(onThree(t, "fact7"), 3, 50) {
		t.Error("three replicas took all guarded writes in flight")
	}
}

// TestClientCutsScheduledTimesToSeconds is fact 8: WithScheduleAt writes whole seconds, so the server
// fires up to a second early. The server itself supports fractions, and is never early.
//
// Decision: timers write the header themselves (internal/broker/stream/timers.go). If the test fails,
// they need not.
func TestClientCutsScheduledTimesToSeconds(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := stream(t, js, jetstream.StreamConfig{Name: "fact8", Subjects: []string{"fact8.>"}, AllowMsgSchedules: true})
	tries := 0
	natstest.Eventually(t, "the client's schedule to fire early", func() bool {
		tries++
		at := time.Now().Truncate(time.Second).Add(1999 * time.Millisecond)
		fired := func(sender string) time.Time {
			var m *jetstream.RawStreamMsg
			natstest.Eventually(t, "the schedule to fire", func() (done bool) {
				var err error
				m, err = s.GetLastMsgForSubject(within(t, limit), fmt.Sprintf("fact8.due.%s.%d", sender, tries))
				return err == nil
			})
			return m.Time
		}
		publish(t, js, fmt.Sprintf("fact8.set.client.%d", tries),
			jetstream.WithScheduleAt(at), jetstream.WithScheduleTarget(fmt.Sprintf("fact8.due.client.%d", tries)))
		own := nats.NewMsg(fmt.Sprintf("fact8.set.own.%d", tries))
		own.Header.Set(jetstream.ScheduleHeader, "@at "+at.UTC().Format(time.RFC3339Nano))
		own.Header.Set(jetstream.ScheduleTargetHeader, fmt.Sprintf("fact8.due.own.%d", tries))
		if _, err := js.PublishMsg(within(t, limit), own); err != nil {
			t.Fatal(err)
		}
		if got := fired("own"); got.Before(at) {
			t.Fatalf("a schedule for %v fired at %v", at, got)
		}
		return fired("client").Before(at)
	})
}

// TestAtomicBatchIsSlowOnOneServer is fact 15: one server writes each batch to disk before it commits it.
// That takes a hundred times as long as its messages would take one by one, on storage that does not sync
// each write. Here a factor of three must be seen, once.
//
// Decision: writes go in batches only where storage is slow and many of them wait (docs/decisions/0022).
// If the test fails, batches might be used everywhere, and one that writes a record and its lock together
// is worth another look.
func TestAtomicBatchIsSlowOnOneServer(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	stream(t, js, jetstream.StreamConfig{Name: "fact15", Subjects: []string{"fact15"}, AllowAtomicPublish: true})
	batches := 0
	batch := func() {
		batches++
		for i := range 2 {
			m := nats.NewMsg("fact15")
			m.Header.Set("Nats-Batch-Id", strconv.Itoa(batches))
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
			if i == 0 {
				if err := js.Conn().PublishMsg(m); err != nil {
					t.Fatal(err)
				}
				continue
			}
			m.Header.Set("Nats-Batch-Commit", "1")
			answer, err := js.Conn().RequestMsg(m, limit)
			if err != nil {
				t.Fatal(err)
			}
			var ack struct {
				Count int `json:"count"`
			}
			if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Count != 2 {
				t.Fatalf("commit: %s", answer.Data)
			}
		}
	}
	var slow, fast time.Duration
	natstest.Eventually(t, "batches to take three times as long as messages", func() bool {
		began := time.Now()
		for range 20 {
			batch()
		}
		slow = time.Since(began)
		began = time.Now()
		for range 20 {
			publish(t, js, "fact15")
			publish(t, js, "fact15")
		}
		fast = time.Since(began)
		return slow > 3*fast
	})
	t.Logf("20 pairs: %v in batches, %v one by one", slow, fast)
}

// TestWildcardsArePublishedAsTheyStand is fact 19: the server stores a message on "s.*" as on any other
// subject. And if a subject does not fit into a line of the protocol (4 KiB), the server closes the
// connection, and does not only refuse the message.
//
// Decision: names of jobs, queues and namespaces are checked before they become subjects, and tokens are
// bounded and escaped (package job). If the test fails, they are still checked: a request for a subject
// with a wildcard finds messages of others.
func TestWildcardsArePublishedAsTheyStand(t *testing.T) {
	t.Parallel()
	one := natstest.Run(t)
	js := one.JetStream()
	s := stream(t, js, jetstream.StreamConfig{Name: "fact19", Subjects: []string{"fact19.>"}})
	for _, subject := range []string{"fact19.*", "fact19.>"} {
		m, err := s.GetMsg(within(t, limit), publish(t, js, subject).Sequence)
		if err != nil || m.Subject != subject {
			t.Errorf("published on %s: %v, %v", subject, m, err)
		}
	}
	closed := make(chan error, 1)
	nc := one.Conn(nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default one prints
		nats.ClosedHandler(func(nc *nats.Conn) { closed <- nc.LastError() }))
	if err := nc.Publish("fact19."+strings.Repeat("x", 4096), nil); err != nil {
		t.Fatalf("the client refuses the subject itself now: %v", err)
	}
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "maximum control line exceeded") {
			t.Errorf("closed with %v", err)
		}
	case <-within(t, limit).Done():
		t.Error("the connection outlives the subject")
	}
}
