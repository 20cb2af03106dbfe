package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func timer(token string, due time.Time) stream.Timer {
	return stream.Timer{
		Message: core.Message{Slot: job.Slot{Job: "report", Token: token}, JobRevision: 7, Node: "alice", Due: due},
		Queue:   "default", Payload: []byte(`{"n": 1}`),
	}
}

func set(t *testing.T, s *kv.Store, timer stream.Timer, revision uint64) uint64 {
	t.Helper()
	won, err := s.Timers().Set(within(t, 10*time.Second), timer, revision)
	if err != nil {
		t.Fatal(err)
	}
	return won
}

func timers(t *testing.T, s *kv.Store, f stream.WaitingFilter) []stream.WaitingSlot {
	t.Helper()
	var all []stream.WaitingSlot
	for w, err := range s.Timers().Waiting(within(t, 10*time.Second), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

func fired(t *testing.T, s *kv.Store, queue string) jetstream.Msg {
	t.Helper()
	c, err := s.Timers().Queue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(10*time.Second), jetstream.FetchPriorityGroup(layout.WorkerGroup))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A timer fires once, not before its time, and also after a restart of the server. A
// fraction of a second counts.
func TestATimerFiresOnceWhenItIsDue(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s := open(t, server.JetStream(), kv.Options{})
	due := time.Now().Add(700 * time.Millisecond).UTC()
	want := timer("invoice 7/ü", due)
	set(t, s, want, 0)
	got, _, err := s.Timers().Read(t.Context(), want.Slot)
	if err != nil || got.Message != want.Message || got.Queue != "default" || string(got.Payload) != `{"n": 1}` {
		t.Fatalf("read %+v, %v", got, err)
	}
	if all := timers(t, s, stream.WaitingFilter{Fired: true}); len(all) > 0 {
		t.Errorf("fired before its time: %+v", all)
	}
	if all := timers(t, s, stream.WaitingFilter{Job: "report"}); len(all) != 1 || !all[0].Timer || all[0].Message != want.Message || all[0].Queue != "default" {
		t.Fatalf("waiting: %+v", all)
	}
	server.Restart()

	m := fired(t, s, "default")
	want.Scheduler = "cronce.timer.set.report.invoice=207=2F=C3=BC"
	meta, err := m.Metadata()
	if err != nil || meta.Timestamp.Before(due) {
		t.Errorf("fired at %v, due at %v (%v)", meta.Timestamp, due, err)
	}
	parsed, err := core.ParseMessage(m.Headers())
	if err != nil || parsed != want.Message || string(m.Data()) != `{"n": 1}` || m.Headers().Get(core.HeaderMsgID) != "" {
		t.Errorf("fired %+v with %q and headers %v, %v", parsed, m.Data(), m.Headers(), err)
	}
	if all := timers(t, s, stream.WaitingFilter{Queue: "default", Fired: true}); len(all) != 1 || all[0].Timer || all[0].Message != want.Message || all[0].Queue != "default" {
		t.Errorf("waiting for a worker: %+v", all)
	}
	if _, _, err := s.Timers().Read(t.Context(), want.Slot); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("a timer that has fired waits: %v", err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := timers(t, s, stream.WaitingFilter{}); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

func TestOfRacingTimersOfOneKeyOneIsSet(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	due := time.Now().Add(time.Hour)
	var group sync.WaitGroup
	won := make([]error, 8)
	for i := range won {
		group.Go(func() {
			one := timer("k", due)
			one.Node = fmt.Sprint("n", i)
			_, won[i] = s.Timers().Set(within(t, 10*time.Second), one, 0)
		})
	}
	group.Wait()
	var winner int
	for i, err := range won {
		if err == nil {
			winner = i
		} else if !errors.Is(err, job.ErrConflict) {
			t.Errorf("%d: %v, want a conflict", i, err)
		}
	}
	got, _, err := s.Timers().Read(t.Context(), timer("k", due).Slot)
	if err != nil || got.Node != fmt.Sprint("n", winner) || won[winner] != nil || len(timers(t, s, stream.WaitingFilter{})) != 1 {
		t.Errorf("read %+v, %v; winners %v", got, err, won)
	}
}

// A timer is replaced only at its revision, and the replaced timer never fires.
func TestATimerIsReplacedAtItsRevisionOnly(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	first := set(t, s, timer("k", time.Now().Add(time.Hour)), 0)
	moved := timer("k", time.Now().Add(time.Second))
	moved.Queue = "other"
	set(t, s, moved, first)
	if _, err := s.Timers().Set(t.Context(), timer("k", time.Now()), first); !errors.Is(err, job.ErrConflict) {
		t.Errorf("replaced what was replaced: %v", err)
	}
	if all := timers(t, s, stream.WaitingFilter{Queue: "default"}); len(all) > 0 {
		t.Errorf("the old one waits: %+v", all)
	}
	fired(t, s, "other")
	if all := timers(t, s, stream.WaitingFilter{}); len(all) != 1 || all[0].Timer {
		t.Errorf("left: %+v", all)
	}
	if _, err := s.Timers().Set(t.Context(), timer("k", time.Now()), first+1); !errors.Is(err, job.ErrConflict) {
		t.Errorf("replaced what has fired: %v", err)
	}
}

func TestACancelledTimerIsGoneAndItsKeyFree(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	due := time.Now().Add(time.Hour)
	set(t, s, timer("k", due), 0)
	set(t, s, timer("k.2", due), 0)
	for range 2 { // a second Cancel returns no error
		if err := s.Timers().Cancel(t.Context(), timer("k", due).Slot); err != nil {
			t.Fatal(err)
		}
	}
	if all := timers(t, s, stream.WaitingFilter{}); len(all) != 1 || all[0].Slot.Token != "k.2" {
		t.Fatalf("left: %+v", all)
	}
	set(t, s, timer("k", due), 0) // within the duplicate window
	if all := timers(t, s, stream.WaitingFilter{}); len(all) != 2 {
		t.Errorf("set again: %+v", all)
	}
}

// Tokens and payloads with any characters pass unchanged through the subject, the headers
// and the schedule.
func TestTokensAndPayloadsTravelUnchanged(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{"*", ">", "a.>", "*.*", ".", "..", "=41", "$KV.x", "a b", `"`, "'; rm -rf /", "日本", "\u0085x", "e\u2028f", strings.Repeat("ü", 64), strings.Repeat("*", 128)}),
		).Filter(func(s string) bool { return job.ValidateToken(s) == nil }).Draw(t, "token")
		want := timer(token, time.Now().Add(time.Hour).UTC().Truncate(time.Nanosecond))
		want.Payload = rapid.SliceOfN(rapid.Byte(), 0, 1000).Draw(t, "payload")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := s.Timers().Set(ctx, want, 0); err != nil {
			t.Fatal(err)
		}
		got, _, err := s.Timers().Read(ctx, want.Slot)
		if err != nil || got.Message != want.Message || !slices.Equal(got.Payload, want.Payload) {
			t.Fatalf("set %+v, read %+v, %v", want, got, err)
		}
		if err := s.Timers().Cancel(ctx, want.Slot); err != nil {
			t.Fatal(err)
		}
	})
	if all := timers(t, s, stream.WaitingFilter{}); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

func TestNoTimersWithoutMessageSchedules(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	old := server.JetStream(natstest.Version("2.11.9"))
	s := open(t, old, kv.Options{})
	if got := streams(t, old); slices.Contains(got, "cronce_timers") {
		t.Errorf("created %v", got)
	}
	one := timer("k", time.Now().Add(time.Hour))
	_, err := s.Timers().Set(t.Context(), one, 0)
	wantError(t, err, errors.ErrUnsupported, "future triggers need nats-server 2.12 or newer; this is 2.11.9")
	if _, _, err := s.Timers().Read(t.Context(), one.Slot); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	if err := s.Timers().Cancel(t.Context(), one.Slot); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if all := timers(t, s, stream.WaitingFilter{}); len(all) > 0 {
		t.Errorf("waiting: %+v", all)
	}

	// The server is upgraded. The namespace works without timers until Setup adds them.
	js := server.JetStream()
	for _, readOnly := range []bool{true, false} {
		s = open(t, js, kv.Options{ReadOnly: readOnly})
	}
	_, err = s.Timers().Set(within(t, 10*time.Second), one, 0)
	wantError(t, err, stream.ErrNoTimers, "stream cronce_timers", "cronce setup")
	_, err = s.Timers().Queue(t.Context(), "default")
	wantError(t, err, stream.ErrNoTimers, "stream cronce_timers", "cronce setup")
	if changes, err := space.Setup(t.Context(), js, kv.Options{}); err != nil || len(changes) != 6 || !strings.Contains(changes[0], "created stream cronce_timers") ||
		!strings.Contains(changes[1], "atomic batches allowed") || !madeAlerts(changes[5]) {
		t.Fatalf("setup: %q, %v", changes, err)
	}
	set(t, s, one, 0)
}

// The stream of timers discards old messages, because schedules require that. So it must
// have no limit.
func TestTimersAreNotDroppedForSpace(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	stream, err := js.Stream(t.Context(), "cronce_timers")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = 1000
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	_, err = kv.Open(t.Context(), js, kv.Options{})
	wantError(t, err, job.ErrMismatch, "stream cronce_timers has a size limit true, not false", "cronce setup")
	if changes, err := space.Setup(t.Context(), js, kv.Options{}); err != nil || len(changes) != 2 || !strings.Contains(changes[0], "a size limit") || !madeAlerts(changes[1]) {
		t.Fatalf("setup: %q, %v", changes, err)
	}
	set(t, s, timer("k", time.Now().Add(time.Hour)), 0)
}

func TestTimersRefuseWhatIsNone(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t).JetStream(), kv.Options{})
	planned := timer("k", time.Now())
	planned.Slot = job.NewSlot("report", time.Now())
	wild := timer("k", time.Now())
	wild.Queue = "*"
	for _, bad := range []stream.Timer{planned, wild, timer("k", time.Time{}), timer("k", stream.LatestTimer)} {
		if _, err := s.Timers().Set(t.Context(), bad, 0); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	set(t, s, timer("k", stream.LatestTimer.Add(-1)), 0)
	if all := timers(t, s, stream.WaitingFilter{}); len(all) != 1 || !all[0].Due.Equal(stream.LatestTimer.Add(-1)) {
		t.Errorf("%+v", all)
	}
}

// A timer that gets no answer is unknown. Setting it again settles it.
func TestATimerWithoutAnAnswerIsUnknownThenSettled(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	proxy := natstest.NewProxy(t, server.ClientURL())
	s := open(t, natstest.JetStream(t, natstest.Connect(t, proxy.URL())), kv.Options{})
	proxy.Deafen()
	one := timer("k", time.Now().Add(time.Hour))
	_, err := s.Timers().Set(within(t, 100*time.Millisecond), one, 0)
	if !errors.Is(err, job.ErrUnknown) {
		t.Fatalf("got %v, want unknown", err)
	}
	proxy.Heal()
	// Set the timer again: exactly one exists, whether or not the first was stored.
	if _, err := s.Timers().Set(within(t, 10*time.Second), one, 0); err != nil && !errors.Is(err, job.ErrConflict) {
		t.Fatal(err)
	}
	if all := timers(t, s, stream.WaitingFilter{}); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// Waiting skips messages that are no timers. Every client may publish on the subjects.
func TestWaitingPassesOverWhatIsNoTimer(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	s := open(t, js, kv.Options{})
	for _, m := range []*nats.Msg{
		{Subject: "cronce.timer.set.report.k"},
		{Subject: "cronce.timer.set.report.k.x", Header: nats.Header{"Cronce-Slot": {"report:@k"}}},
		{Subject: "cronce.timer.due.default.report"},
		{Subject: "cronce.timer.due"},
		{Subject: "cronce.timer.nonsense"},
	} {
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.Timers().Read(t.Context(), job.Slot{Job: "report", Token: "k"})
	if _, is := errors.AsType[*stream.UnreadableTimerError](err); !is || !errors.Is(err, job.ErrInvalid) {
		t.Errorf("a timer that cannot be read: %v", err)
	}
	set(t, s, timer("good", time.Now().Add(time.Hour)), 0)
	var good, bad int
	for w, err := range s.Timers().Waiting(t.Context(), stream.WaitingFilter{}) {
		switch {
		case err == nil && w.Slot.Token == "good":
			good++
		case errors.Is(err, job.ErrInvalid):
			bad++
		default:
			t.Errorf("%+v, %v", w, err)
		}
	}
	if good != 1 || bad != 3 {
		t.Errorf("%d read, %d not; want 1 and 3", good, bad)
	}
}

// Two clients set the same timers on three servers. Each timer is set once, and fires
// although the stream's leader stops when they are due.
func TestTimersOutliveTheirStreamsLeader(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	s := open(t, c.JetStream(), kv.Options{})
	const n = 100
	due := time.Now().Add(3 * time.Second)
	var setting sync.WaitGroup
	var won atomic.Int32
	for range 2 {
		setting.Go(func() {
			for i := range n {
				_, err := s.Timers().Set(within(t, 30*time.Second), timer(fmt.Sprint(i), due), 0)
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, job.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	setting.Wait()
	// On a very slow machine some timers fire before the second client sets them. Those
	// are set again, which is correct.
	if got := won.Load(); got < n || got > n && time.Now().Before(due) {
		t.Errorf("%d of %d timers were set", got, n)
	}
	c.Leader("cronce_timers").Stop()

	queue, err := s.Timers().Queue(within(t, time.Minute), "default")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	natstest.Eventually(t, "all to fire", func() bool {
		m, err := queue.Next(jetstream.FetchMaxWait(time.Second), jetstream.FetchPriorityGroup(layout.WorkerGroup))
		if err != nil {
			return false
		}
		got, err := core.ParseMessage(m.Headers())
		if err != nil {
			t.Error(err)
		}
		seen[got.Slot.Token]++
		_ = m.Ack()
		return len(seen) == n
	})
}
