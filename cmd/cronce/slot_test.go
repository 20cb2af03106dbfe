package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

// obeyed are control sequences, which must not reach a terminal unescaped.
const obeyed = "\x1b[2J\x1b]0;owned\a\r\u009b31m\u202e"

// failedSlot records a slot whose first worker died and whose second one failed. An operator
// retried it, and it failed again.
func (f *fixture) failedSlot(t *testing.T) job.Slot {
	t.Helper()
	nine := at("2026-03-28T09:00:00Z")
	slot := job.NewSlot("report", nine)
	say := func(e job.Event, after time.Duration) {
		e.V, e.ID, e.Job, e.Time = codec.Version, slot.ID(), "report", nine.Add(after)
		if e.Kind == job.EventFenced {
			e.ID, e.Job = "", exchange.NoJob
		}
		if err := f.store.StoreEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	say(job.Event{Kind: job.EventFenced, Node: "web2-1", Peer: "web1-1"}, 20*time.Second)
	say(job.Event{Kind: job.EventFenced, Node: "web2-1", Peer: "elsewhere-1"}, 21*time.Second)
	say(job.Event{Kind: job.EventTakeover, Node: "web2-1", Peer: "web1-1", Attempt: 2}, 22*time.Second)
	say(job.Event{Kind: job.EventFailed, Node: "web2-1", Error: "exit status 3 (all 2 attempts are spent)"}, 23*time.Second)
	say(job.Event{Kind: job.EventAlert, Node: "alice@laptop", Reopened: true, Error: "given a new start by alice@laptop; it was failed: exit status 3"}, 10*time.Minute)
	say(job.Event{Kind: job.EventFailed, Node: "web2-1", Error: "exit status 3"}, 11*time.Minute)
	f.record(t, job.Record{
		Slot: slot, Queue: "default", Attempt: 4, MaxAttempts: 4, Node: "web2-1", Due: nine, Published: nine.Add(2 * time.Millisecond),
		Publisher: "web3-1", JobRevision: 7, Finished: nine.Add(10*time.Minute + 3*time.Second),
		Error: "exit status 3 (all 4 attempts are spent)", Output: "opening " + obeyed + "\nno space\tleft \xff\n",
		Attempts: []job.Attempt{
			{Number: 1, Node: "web1-1", Fence: 11, Started: nine.Add(5 * time.Millisecond), Finished: nine.Add(22 * time.Second), Error: "worker web1-1 died"},
			{Number: 2, Node: "web2-1", Fence: 15, Started: nine.Add(22 * time.Second), Finished: nine.Add(23 * time.Second), Error: "exit status 3\n" + obeyed},
			{Number: 3, Node: "web2-1", Fence: 21, Started: nine.Add(10*time.Minute + 10*time.Millisecond), Finished: nine.Add(10*time.Minute + time.Second), Error: "exit status 3"},
			{Number: 4, Node: "web2-1", Fence: 23, Started: nine.Add(10*time.Minute + 2*time.Second), Finished: nine.Add(10*time.Minute + 3*time.Second), Error: "exit status 3"},
		},
	}, job.Running, job.Failed)
	return slot
}

func TestAFailedSlotsStoryIsToldInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	slot := f.failedSlot(t)
	for name, args := range map[string][]string{
		"slot_show.txt": {"slot", "show", slot.ID()}, "slot_show.json": {"slot", "show", slot.ID(), "-o", "json"},
		"slot_explain.txt": {"slot", "explain", slot.ID()}, "slot_explain.json": {"slot", "explain", slot.ID(), "-o", "json"},
	} {
		out := f.ok(t, args...)
		golden(t, name, out)
		if strings.ContainsFunc(out, printable.Hidden) {
			t.Errorf("%s: a terminal would obey %q", name, out)
		}
	}
	if out := f.ok(t, "slot", "ls"); strings.ContainsFunc(out, printable.Hidden) {
		t.Errorf("slot ls: a terminal would obey %q", out)
	}
}

// Explain gives each reason why there is no such slot, and the nearest slots.
func TestWhyThereIsNoSuchSlot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := time.Now().UTC()
	hour := now.Truncate(time.Hour)
	f.define(t, plans.Definition{
		Job: job.Job{Name: "report", Schedule: "0 * * * *", Exclude: []string{"0 13 * * *"}, Until: at("2100-01-01T00:00:00Z")}, Since: hour.AddDate(0, 0, -30),
	})
	f.define(t, plans.Definition{Job: job.Job{Name: "young", Schedule: "0 * * * *"}})
	f.define(t, plans.Definition{Job: job.Job{Name: "paused", Schedule: "0 * * * *"}, Since: hour.AddDate(0, 0, -30), Paused: true, Pauses: []plans.Window{{From: hour.Add(-3 * time.Hour)}}})
	missed := job.Slot{Job: "report", At: hour.Add(-50 * time.Hour), Range: true}
	f.record(t, job.Record{Slot: missed, Count: 12, Last: hour.Add(-39 * time.Hour), Error: "left out", Finished: now, Published: now}, job.Missed)
	id := func(name string, at time.Time) string { return job.NewSlot(name, at).ID() }
	inside := hour.Add(-45 * time.Hour)
	tooOld := hour.AddDate(0, 0, -20)
	if inside.Hour() == 13 { // which is excluded
		inside = inside.Add(time.Hour)
	}
	if tooOld.Hour() == 13 {
		tooOld = tooOld.Add(time.Hour)
	}
	one := at("2050-05-05T13:00:00Z")
	for slot, want := range map[string][]string{
		"report:@order 7":                                   {"Job report was not triggered with this token"},
		"reprot:@x":                                         {"no job reprot", "Did you mean report?"},
		id("report", hour.AddDate(-1, 0, 0)):                {"came into force at", "The slot after:"},
		id("young", hour):                                   {"came into force at"},
		id("report", tooOld):                                {"older than the ledger's retention"},
		id("report", one.Add(time.Second)):                  {`schedule "0 * * * *"`, "The slot before: report:2050-05-05T12:00:00Z", "The slot after:  report:2050-05-05T14:00:00Z"},
		id("report", one):                                   {"without its exclusions"},
		id("report", at("2100-01-01T00:00:00Z")):            {"end before 2100-01-01T00:00:00Z (until)"},
		id("report", at("2050-05-05T15:00:00Z")):            {"not due before 2050-05-05T15:00:00Z"},
		id("paused", at("2050-05-05T15:00:00Z")):            {"not due before", "paused"},
		id("paused", hour.Add(-2*time.Hour)):                {"during the job's pause", "policy (latest) decides"},
		id("report", inside):                                {"one of 12 slots", missed.ID()},
		job.Slot{Job: "report", At: hour, Range: true}.ID(): {"No range"},
	} {
		if out := f.ok(t, "slot", "explain", slot); !strings.Contains(out, want[0]) || !strings.Contains(out, want[len(want)-1]) {
			t.Errorf("%s: %q does not say %q", slot, out, want)
		}
		if !strings.Contains(want[0], "one of 12") {
			f.run(t, "slot", "show", slot).oneError(t, base.ExitFailed, "no record", "slot explain")
		}
	}
	f.due(t, hour)
	for _, command := range []string{"show", "explain", "retry", "cancel"} {
		f.run(t, "slot", command, "re*port:>").oneError(t, base.ExitUsage, "slot ls")
		f.run(t, "slot", command).oneError(t, base.ExitUsage)
	}
	f.run(t, "slot", "cancel", "report:@x", "--wait", "0s").oneError(t, base.ExitUsage, "--wait")
}

// due explains a slot of the first hour up to this one that is not excluded, before and after the
// watermark has passed it.
func (f *fixture) due(t *testing.T, hour time.Time) {
	t.Helper()
	for hour.Hour() == 13 {
		hour = hour.Add(-time.Hour)
	}
	id := job.NewSlot("report", hour).ID()
	if out := f.ok(t, "slot", "explain", id); !strings.Contains(out, "no live node is a producer") {
		t.Errorf("unpublished: %s", out)
	}
	mark := exchange.Watermark{Time: time.Now(), Node: "p", Nonce: "p#1"}
	if _, err := f.store.Watermark().Write(t.Context(), mark, 0); err != nil {
		t.Fatal(err)
	}
	if out := f.ok(t, "slot", "explain", id); !strings.Contains(out, "cronce verify") {
		t.Errorf("lost: %s", out)
	}
}

// A pending slot waits for a worker of its queue that has a handler.
func TestWhatAPendingSlotWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	slot := job.Slot{Job: "report", Token: "it's *"}
	f.publish(t, "slow", core.Message{Slot: slot, Node: "web1-1"})
	explain := func(want string) {
		t.Helper()
		if out := f.ok(t, "slot", "explain", slot.ID()); !strings.Contains(out, want) {
			t.Errorf("%s does not say %q", out, want)
		}
	}
	explain("no live node works on queue slow")
	f.join(t, exchange.Node{Name: "web1-1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"slow"}})
	explain("none of the 1 live nodes that work on queue slow has a handler")
	f.join(t, exchange.Node{Name: "web2-1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"slow"}}, "report")
	explain("for a free worker")
	if out := f.ok(t, "slot", "show", slot.ID()); !strings.Contains(out, "pending") || !strings.Contains(out, "slow") {
		t.Errorf("shown as %s", out)
	}
	f.run(t, "slot", "retry", slot.ID()).oneError(t, base.ExitFailed, "first time", `cronce slot explain 'report:@it'\''s *'`)
	if out := f.ok(t, "slot", "cancel", slot.ID()); !strings.Contains(out, "cancelled by ") {
		t.Errorf("cancel says %s", out)
	}
	if out := f.ok(t, "slot", "cancel", slot.ID(), "-o", "json"); !strings.HasPrefix(out, `{"id":"report:@it's *","state":"cancelled","error":"cancelled by `) {
		t.Errorf("the second cancel says %s", out)
	}
}

func TestSlotRetryAndItsRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "0 * * * *"}})
	slot := job.NewSlot("report", time.Now().Add(-time.Hour))
	f.record(t, job.Record{Slot: slot, Queue: "default", Published: slot.At, Finished: slot.At, Error: "boom"}, job.Failed)
	if got, want := f.ok(t, "slot", "retry", slot.ID(), "-o", "json"), `{"id":"`+slot.ID()+`","state":"retrying","attempt":0,"attempts_left":3}`+"\n"; got != want {
		t.Errorf("retry prints %q, want %q", got, want)
	}
	f.run(t, "slot", "retry", slot.ID()).oneError(t, base.ExitFailed, "being retried already", "slot explain")
	if out := f.ok(t, "slot", "explain", slot.ID()); !strings.Contains(out, "waits for attempt 1 of 3") || !strings.Contains(out, "no live node works on queue default") {
		t.Errorf("explained as %s", out)
	}
	gone := job.NewSlot("gone", slot.At)
	f.record(t, job.Record{Slot: gone, Queue: "default", Published: slot.At}, job.Failed)
	f.run(t, "slot", "retry", gone.ID()).oneError(t, base.ExitFailed, "no job named gone")
}

// Watch prints the events that the filter selects, and goes on after a restart of the server. An
// interrupt ends it with status 0.
func TestWatchShowsEventsAsTheyHappen(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	f := &fixture{cli: cli{env: map[string]string{"CRONCE_SERVER": srv.ClientURL()}}}
	f.run(t, "watch").oneError(t, base.ExitFailed, "cronce setup")
	if r := f.run(t, "setup"); r.code != base.ExitDone {
		t.Fatalf("setup: %+v", r)
	}
	ctx, stop := context.WithCancel(t.Context())
	lines, ended := make(chan string, 100), make(chan int, 1)
	read, write := io.Pipe()
	go func() {
		defer close(lines)
		for dec := json.NewDecoder(read); ; {
			var e job.Event
			if dec.Decode(&e) != nil {
				return
			}
			lines <- string(e.Kind) + " " + e.ID
		}
	}()
	a := f.app(write, io.Discard)
	go func() {
		ended <- execute(ctx, a, []string{"watch", "-o", "json", "--job", "report", "--kind", "failed"})
		write.Close()
	}()
	nc := srv.Conn()
	tell := func(subject string, e job.Event) {
		e.V = codec.Version
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish(subject, data); err != nil {
			t.Fatal(err)
		}
	}
	// The events are repeated until watch prints one, because events can be lost.
	heard := func(id string) {
		natstest.Eventually(t, "the event of "+id, func() bool {
			tell("cronce.event.failed.other", job.Event{Kind: job.EventFailed, ID: "other:@x"})
			tell("cronce.event.retrying.report", job.Event{Kind: job.EventRetrying, ID: "report:@x"})
			tell("cronce.event.failed.report", job.Event{Kind: job.EventFailed, ID: id})
			for {
				select {
				case got := <-lines:
					if got == "failed "+id {
						return true
					}
					if got != "failed report:@1" {
						t.Fatalf("heard %q", got)
					}
				default:
					return false
				}
			}
		})
	}
	heard("report:@1")
	srv.Stop()
	srv.Start()
	nc = srv.Conn()
	heard("report:@2")
	stop()
	go func() {
		for range lines { // more copies than the channel holds; watch must not wait for this test
		}
	}()
	if code := <-ended; code != base.ExitDone {
		t.Errorf("exit status %d after an interrupt", code)
	}
	f.run(t, "watch", "--kind", "x").oneError(t, base.ExitUsage, `invalid --kind "x"`)
	f.run(t, "watch", "--job", "a.b").oneError(t, base.ExitUsage, `"a.b"`)
}
