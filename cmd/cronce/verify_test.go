package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// newArchive is a fleet that neither forgets nor expires anything, so that times
// long ago can be judged.
func newArchive(t *testing.T) *fixture {
	t.Helper()
	const ever = 200_000 * time.Hour
	s := natstest.Run(t)
	store := kvtest.Open(t, s.JetStream(), kv.Options{Want: job.Settings{Horizon: ever, Retention: 2 * ever}})
	f := &fixture{cli: cli{env: map[string]string{"CRONCE_SERVER": s.ClientURL()}}, store: store, url: s.ClientURL()}
	since := at("2026-03-01T00:00:00Z")
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "0 * * * *"}, Since: since})
	f.define(t, plans.Definition{Job: job.Job{Name: "backup", Schedule: "@hourly"}, Since: since, Paused: true, Pauses: []plans.Window{{From: since}}})
	mark := exchange.Watermark{Time: at("2026-03-28T12:00:00Z"), Revision: 100, Nonce: "n"}
	if _, err := store.Watermark().Write(t.Context(), mark, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) succeed(t *testing.T, s job.Slot, late time.Duration) {
	t.Helper()
	start := s.At.Add(late)
	f.record(t, job.Record{
		Slot: s, Queue: "default", Due: s.At, Published: s.At, Node: "w1", Attempt: 1,
		Attempts: []job.Attempt{{Number: 1, Node: "w1", Started: start, Finished: start.Add(time.Second)}},
	}, job.Succeeded)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	f := newArchive(t)
	hour := func(h int) job.Slot {
		return job.NewSlot("report", at("2026-03-28T00:00:00Z").Add(time.Duration(h)*time.Hour))
	}
	f.succeed(t, hour(6), 20*time.Millisecond)
	f.succeed(t, hour(7), 3*time.Second)
	f.record(t, job.Record{Slot: hour(9), Queue: "default", Due: hour(9).At, Node: "w1", Attempt: 1}, job.Retrying)
	f.publish(t, "default", core.Message{Slot: hour(10), Due: hour(10).At})
	// The ledger has an outcome of this slot, and an event has another outcome.
	f.succeed(t, hour(11), 0)
	told := job.Event{V: codec.Version, Kind: job.EventFailed, Time: hour(11).At, Job: "report", ID: hour(11).ID()}
	if err := f.store.StoreEvent(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	f.record(t, job.Record{Slot: job.Slot{Job: "report", Token: "by hand"}, Published: hour(8).At, Node: "w1"}, job.Cancelled)

	verify := []string{"verify", "--from", "2026-03-28T06:00:00Z", "--to", "2026-03-28T13:00:00Z"}
	for format, name := range map[string]string{"text": "verify.txt", "json": "verify.json"} {
		r := f.run(t, append(verify, "-o", format)...)
		if r.code != base.ExitFound || r.stderr != "cronce: the check found something: 2 missing, 1 without outcome, 1 doubled, 0 early\n" {
			t.Errorf("exit status %d, stderr %q", r.code, r.stderr)
		}
		golden(t, name, r.stdout)
	}
	well := f.ok(t, "verify", "--from", "2026-03-28T06:00:00Z", "--to", "2026-03-28T08:00:00Z", "--job", "report")
	golden(t, "verify_well.txt", well)
}

func TestVerifyUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(t, "verify", "--from", "yesterday").oneError(t, base.ExitUsage, `invalid --from "yesterday"`, "RFC 3339")
	f.run(t, "verify", "--from", "2026-03-28T06:00:00Z", "--to", "2026-03-28T06:00:00Z").oneError(t, base.ExitUsage, "must be after --from")
	for _, future := range []string{"--from 2999-01-01T00:00:00Z", "--from 2999-01-01T00:00:00Z --to 2999-01-02T00:00:00Z", "--to 2999-01-02T00:00:00Z"} {
		f.run(t, append([]string{"verify"}, strings.Fields(future)...)...).oneError(t, base.ExitUsage, "2999-01-01T00:00:00Z is in the future")
	}
	f.run(t, "verify", "--job", "a b").oneError(t, base.ExitUsage, `"a b"`)
	f.run(t, "verify", "--job", "missing").oneError(t, base.ExitFailed, `job "missing": not found in the registry`, "job ls")
	if got := f.ok(t, "verify"); !strings.Contains(got, "0 of 0 jobs") {
		t.Errorf("an empty namespace: %s", got)
	}
}

// replica runs a job of every second until stop is called.
func (f *fixture) replica(t *testing.T, options ...cronce.Option) (stop func()) {
	t.Helper()
	s, err := cronce.New(t.Context(), natstest.Connect(t, f.url), options...)
	if err != nil {
		t.Fatal(err)
	}
	j := job.Job{Name: "tick", Schedule: "* * * * * *", Overlap: job.OverlapAllow}
	if err := s.Handle(j, func(context.Context, job.Run) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// verify runs the command, and returns the slots with a problem.
func (f *fixture) verify(t *testing.T, args ...string) (code int, slots []string) {
	t.Helper()
	r := f.run(t, append([]string{"verify", "-o", "json"}, args...)...)
	for line := range strings.Lines(r.stdout) {
		var row struct{ Problem, ID string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if row.ID != "" {
			slots = append(slots, row.Problem+" "+row.ID)
		}
	}
	return r.code, slots
}

// waitingOf returns the messages of the stream, by slot.
func (f *fixture) waitingOf(t *testing.T) map[string][]stream.WaitingSlot {
	t.Helper()
	all := map[string][]stream.WaitingSlot{}
	for w, err := range f.store.Slots().Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[w.Slot.ID()] = append(all[w.Slot.ID()], w)
	}
	return all
}

// Several verify commands at the same time find and repair records that were removed by hand.
func TestVerifyRepairsWhatWasRemovedByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	js := natstest.JetStream(t, natstest.Connect(t, f.url))
	f.replica(t, cronce.WithoutWorking())
	stop := f.replica(t, cronce.WithoutProducing())
	record := firstOf(t, "a slot that succeeded", func() (job.Slot, bool) {
		for e, err := range f.store.Ledger().List(t.Context(), kv.ListFilter{}) {
			if err == nil && e.State == job.Succeeded {
				return e.Slot, true
			}
		}
		return job.Slot{}, false
	})
	stop()
	message := firstOf(t, "a slot that waits", func() (w stream.WaitingSlot, ok bool) {
		for _, w := range f.waitingOf(t) {
			if _, _, err := f.store.Ledger().Read(t.Context(), w[0].Slot); err != nil {
				return w[0], true
			}
		}
		return w, false
	})

	ledger, err := js.KeyValue(t.Context(), "cronce_ledger")
	if err == nil {
		err = ledger.Delete(t.Context(), record.Key())
	}
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "cronce_slots")
	if err == nil {
		err = stream.DeleteMsg(t.Context(), message.Sequence)
	}
	if err != nil {
		t.Fatal(err)
	}

	want := []string{"missing " + record.ID(), "missing " + message.Slot.ID()}
	natstest.Eventually(t, "both to be found", func() bool {
		code, found := f.verify(t)
		if len(found) > 2 || code != base.ExitFound && len(found) > 0 {
			t.Fatalf("exit status %d, found %q, want %q", code, found, want)
		}
		return slices.Equal(found, want)
	})

	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { f.run(t, "verify", "--repair") })
	}
	both.Wait()
	waiting := f.waitingOf(t)
	for _, id := range []string{record.ID(), message.Slot.ID()} {
		if copies := waiting[id]; len(copies) != 1 || copies[0].Offer != 1 {
			t.Errorf("%s was offered as %+v", id, copies)
		}
	}
	if code, found := f.verify(t); code != base.ExitDone {
		t.Errorf("while they wait: exit status %d, %q", code, found)
	}

	f.replica(t, cronce.WithoutProducing())
	natstest.Eventually(t, "both to succeed", func() bool {
		for _, s := range []job.Slot{record, message.Slot} {
			if r, _, err := f.store.Ledger().Read(t.Context(), s); err != nil || r.State != job.Succeeded {
				return false
			}
		}
		return true
	})
	if code, found := f.verify(t); code != base.ExitDone {
		t.Errorf("afterwards: exit status %d, %q", code, found)
	}
}

// A slot of a dead worker, whose message is gone, is offered again. A repaired slot that has an
// event of an earlier outcome does not count as doubled afterwards.
func TestVerifyRepairsWhatCannotMove(t *testing.T) {
	t.Parallel()
	f := newArchive(t)
	hour := func(h int) job.Slot {
		return job.NewSlot("report", at("2026-03-28T00:00:00Z").Add(time.Duration(h)*time.Hour))
	}
	f.record(t, job.Record{Slot: hour(6), Queue: "old", Due: hour(6).At, Node: "dead", Attempt: 1}, job.Running)
	if err := f.store.StoreEvent(t.Context(), job.Event{V: codec.Version, Kind: job.EventFailed, Job: "report", ID: hour(7).ID()}); err != nil {
		t.Fatal(err)
	}
	run := job.Slot{Job: "report", Token: "k"}
	f.record(t, job.Record{Slot: run, Queue: "default", Published: hour(6).At, Node: "dead", Attempt: 1, Payload: []byte(`{"own":1}`)}, job.Running)
	args := []string{"--from", "2026-03-28T06:00:00Z", "--to", "2026-03-28T08:00:00Z"}
	code, found := f.verify(t, append(args, "--repair")...)
	if want := []string{"missing " + hour(7).ID(), "no_outcome " + run.ID(), "no_outcome " + hour(6).ID()}; code != base.ExitFound || !slices.Equal(found, want) {
		t.Fatalf("exit status %d, found %q, want %q", code, found, want)
	}
	waiting := f.waitingOf(t)
	if w := waiting[hour(6).ID()]; len(w) != 1 || w[0].Queue != "old" || w[0].Offer != 1 {
		t.Errorf("the dead worker's slot waits as %+v", w)
	}
	if w := waiting[hour(7).ID()]; len(w) != 1 || w[0].Queue != "default" || !w[0].CaughtUp {
		t.Errorf("the missing slot waits as %+v", w)
	}
	if w := waiting[run.ID()]; len(w) != 1 || string(w[0].Payload) != `{"own":1}` {
		t.Errorf("the dead worker's triggered run waits as %+v", w)
	}
	f.succeed(t, hour(7), time.Hour)
	if code, found := f.verify(t, args...); code != base.ExitDone {
		t.Errorf("afterwards: exit status %d, %q", code, found)
	}
}

func firstOf[T any](t *testing.T, what string, find func() (T, bool)) (found T) {
	t.Helper()
	natstest.Eventually(t, what, func() bool {
		var ok bool
		found, ok = find()
		return ok
	})
	return found
}
