package kv_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Invariant 11: what cannot be stored is cut, not retried for ever. A server with a limit
// of 32 KiB stores a record with 60 kB of output, an alert and an event with a long
// error, and a node with many handlers. A payload that is too large is refused before
// anything is stored.
func TestWhatCannotBeStoredIsCut(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t, func(o *server.Options) { o.MaxPayload = 32 << 10 }).JetStream(), kv.Options{})
	ctx := within(t, time.Minute)
	claim := kvtest.Record(0, "claim")
	fence, err := s.Ledger().Write(ctx, claim, 0)
	if err != nil {
		t.Fatal(err)
	}
	claim.Nonce, claim.State, claim.Finished, claim.Output = "outcome", job.Succeeded, at, strings.Repeat("x", 60_000)
	if _, err := s.Ledger().Write(ctx, claim, fence); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.Ledger().Read(ctx, claim.Slot)
	if err != nil || got.State != job.Succeeded || len(got.Output) < 28_000 || !strings.Contains(got.Output, " bytes cut) ...\n") {
		t.Errorf("read %s with %d bytes of output, %v; want as much as fits, and a mark", got.State, len(got.Output), err)
	}
	long := job.Event{V: codec.Version, Kind: job.EventAlert, Time: at, Node: "n", ID: claim.Slot.ID(), Job: "report", Error: strings.Repeat("e", 60_000)}
	if err := s.Alert(ctx, long, "1"); err != nil {
		t.Errorf("alert: %v", err)
	}
	if err := s.StoreEvent(ctx, long); err != nil {
		t.Errorf("event: %v", err)
	}
	if err := s.Emit(long); err != nil {
		t.Errorf("event: %v", err)
	}
	many := exchange.Handlers{Node: "n1", Nonce: "1"}
	for range 5000 {
		many.Jobs = append(many.Jobs, "a-job-with-quite-a-long-name")
	}
	if _, err := s.HandlerLists().Write(ctx, many, 0); err != nil {
		t.Errorf("list of handlers: %v", err)
	}
	lists, err := s.HandlerLists().Latest(ctx, []string{"n1", "n2"})
	if list := lists["n1"]; err != nil || len(lists) != 1 || len(list.Jobs) < 500 || len(list.Jobs)+list.More != 5000 || !list.Set().MayHandle("left-out") {
		t.Errorf("%d lists, %d jobs and %d more, %v; want one list, cut with a mark", len(lists), len(list.Jobs), list.More, err)
	}
	slot, err := job.ParseSlotID("report:@big")
	if err != nil {
		t.Fatal(err)
	}
	m, large := core.Message{Slot: slot, Node: "n", Due: time.Now().Add(time.Hour)}, []byte(`"`+strings.Repeat("p", 25_000)+`"`)
	_, err = s.Timers().Set(ctx, stream.Timer{Message: m, Queue: "default", Payload: large}, 0)
	_, refused := s.Slots().Put(ctx, "default", m, large)
	for what, err := range map[string]error{"trigger": refused, "timer": err} {
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), "max_payload") {
			t.Errorf("%s: %v, want that the payload is too large", what, err)
		}
	}
	for w := range s.Waiting(ctx, stream.WaitingFilter{}) {
		t.Errorf("%s is stored", w.Slot)
	}
	if _, err := s.Slots().Put(ctx, "default", m, large[:100]); err != nil {
		t.Errorf("a payload that fits: %v", err)
	}
}

// The names of many slots and jobs are larger than a message may be. A node that starts asks for those
// of all jobs of its file, so it ended at once.
func TestQuestionsAboutManySlotsAndJobsFitASmallMaxPayload(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Run(t, func(o *server.Options) { o.MaxPayload = 4 << 10 }).JetStream(), kv.Options{})
	ctx := within(t, time.Minute)
	var slots []job.Slot
	var names []string
	for i := range 500 {
		name := fmt.Sprintf("%s%03d", strings.Repeat("j", 61), i)
		slots, names = append(slots, job.Slot{Job: name, Token: strings.Repeat("=", job.MaxToken)}), append(names, name)
	}
	last := kvtest.Record(0, "1")
	last.Slot = slots[len(slots)-1]
	if _, err := s.Ledger().Write(ctx, last, 0); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Ledger().Records(ctx, slots); err != nil || len(found) != 1 || found[last.Slot].Nonce != "1" {
		t.Errorf("records: %d, %v", len(found), err)
	}
	if _, err := s.Jobs().Write(ctx, kvtest.Definition(names[len(names)-1], "1"), 0); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Jobs().Latest(ctx, names); err != nil || len(found) != 1 {
		t.Errorf("jobs: %d, %v", len(found), err)
	}
	if _, err := s.Timers().Latest(ctx, slots); err != nil {
		t.Errorf("timers: %v", err)
	}
	own := kvtest.Record(1, "own")
	revision, err := s.Ledger().Write(ctx, own, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.Ledger().Beside(ctx, own.Slot, revision, slots[len(slots)-job.MaxAfter:]); err != nil || len(found) != 1 {
		t.Errorf("records beside another: %d, %v", len(found), err)
	}
}

// Records of 11 MB in all are more than one answer of the server holds. Beside finds all of them,
// whether its own record was written before the others or after them.
func TestRecordsBesideAnotherAreFoundEvenIfOneAnswerCannotHoldThem(t *testing.T) {
	t.Parallel()
	l := open(t, natstest.Run(t).JetStream(), kv.Options{}).Ledger()
	ctx := within(t, time.Minute)
	var slots []job.Slot
	var revisions []uint64
	for i := range job.MaxAfter {
		r := kvtest.Record(i, "1")
		r.Payload = []byte(`"` + strings.Repeat("p", job.MaxPayload-2) + `"`)
		revision, err := l.Write(ctx, r, 0)
		if err != nil {
			t.Fatal(err)
		}
		slots, revisions = append(slots, r.Slot), append(revisions, revision)
	}
	for _, own := range []int{0, len(slots) - 1} {
		others := slices.Delete(slices.Clone(slots), own, own+1)
		found, err := l.Beside(ctx, slots[own], revisions[own], others)
		if err != nil {
			t.Fatal(err)
		}
		got := map[job.Slot]bool{}
		for _, r := range found {
			got[r.Slot] = true
		}
		if len(found) != len(others) || len(got) != len(others) || got[slots[own]] {
			t.Errorf("beside record %d: %d records of %d slots, want all %d others", own, len(found), len(got), len(others))
		}
	}
}
