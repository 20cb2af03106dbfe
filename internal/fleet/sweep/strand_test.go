package sweep_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// A slot with a record is offered as its record says, one without as its message says.
func TestAStrandedMessageDoesNotCountAsAMessage(t *testing.T) {
	s := newSite(t)
	retries, fresh, done, run := slot(1), slot(2), slot(3), job.Slot{Job: "report", Token: "k"}
	revision := s.record(job.Record{Slot: retries, State: job.Retrying, RetryAt: time.Now()})
	s.record(job.Record{Slot: done, State: job.Succeeded})
	payload := json.RawMessage(`{"own":1}`)
	for _, m := range []core.Message{{Slot: retries}, {Slot: fresh, Due: fresh.At, CaughtUp: true}, {Slot: done}} {
		s.publish(m)
	}
	wait, err := s.Slots().Publish("default", core.Message{Slot: run}, payload)
	if err == nil {
		_, err = wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	before := s.messages()
	queue := natstest.Strand(t, s.js, "cronce")
	s.pass()
	s.want(before...) // a worker may still have them
	s.shift = 5 * time.Minute
	for range 2 {
		s.pass()
	}
	offered := []string{
		retries.ID() + "/r" + strconv.FormatUint(revision+2, 10) + ` {"n":1}`,
		fresh.ID() + "/r4 ", run.ID() + `/r6 {"own":1}`,
	}
	s.want(slices.Sorted(slices.Values(slices.Concat(before, offered)))...)
	for _, m := range natstest.Take(t, queue, len(offered)) {
		if got, err := core.ParseMessage(m.Headers()); err != nil || got.Slot == fresh && (!got.CaughtUp || !got.Due.Equal(fresh.At)) {
			t.Errorf("offered %+v, %v", got, err)
		}
	}
	var stranded []uint64
	for w, err := range s.Waiting(t.Context(), stream.WaitingFilter{Stranded: true}) {
		if err != nil {
			t.Fatal(err)
		}
		stranded = append(stranded, w.Sequence)
	}
	if want := []uint64{1, 2, 3, 4}; !slices.Equal(stranded, want) {
		t.Errorf("stranded are %v, want %v", stranded, want)
	}
}
