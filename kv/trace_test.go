package kv_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Every publication is traced, whatever its reason, because all of them pass the store. Each
// message carries the Traceparent that its own trace has set.
func TestEveryPublicationIsTraced(t *testing.T) {
	t.Parallel()
	var traced []string
	s := open(t, natstest.Run(t).JetStream(), kv.Options{Trace: func(queue string, m *core.Message) func(bool, error) {
		if m.Missed > 0 {
			return nil
		}
		was := m.Traceparent
		m.Traceparent = "span of " + m.Slot.ID()
		return func(duplicate bool, err error) {
			traced = append(traced, strings.TrimSpace(fmt.Sprint(m.Slot.ID(), " ", queue, " ", duplicate, " ", err != nil, " ", was)))
		}
	}})
	planned := core.Message{Slot: job.NewSlot("report", at)}
	publish(t, s, "default", planned)
	publish(t, s, "default", planned)
	publish(t, s, "default", core.Message{Slot: job.NewSlot("report", at.Add(time.Hour)), Missed: 1})
	if _, err := s.Slots().Put(t.Context(), "bulk", core.Message{Slot: job.NewSlot("load", at), Traceparent: "caller's"}, nil); err != nil {
		t.Fatal(err)
	}
	timer := stream.Timer{Message: core.Message{Slot: job.Slot{Job: "report", Token: "k"}, Due: time.Now().Add(time.Hour)}, Queue: "default"}
	if _, err := s.Timers().Set(t.Context(), timer, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Timers().Set(t.Context(), timer, 0); !errors.Is(err, job.ErrConflict) {
		t.Fatal(err)
	}
	id, load := planned.Slot.ID(), job.NewSlot("load", at).ID()
	if want := []string{id + " default false false", id + " default true false", load + " bulk false false caller's", "report:@k default false false", "report:@k default false true"}; !slices.Equal(traced, want) {
		t.Errorf("traced\n%q, want\n%q", traced, want)
	}
	carried := map[string]string{}
	for w, err := range s.Waiting(t.Context(), stream.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		carried[w.Slot.ID()] = w.Traceparent
	}
	for slot, got := range carried {
		want := "span of " + slot
		if slot == job.NewSlot("report", at.Add(time.Hour)).ID() {
			want = "" // published only to be recorded as missed
		}
		if got != want {
			t.Errorf("%s goes on with %q, want %q", slot, got, want)
		}
	}
	if len(carried) != 4 {
		t.Errorf("%d wait: %v", len(carried), carried)
	}
}
