package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// If the answer to a publication is lost, with or without the connection, the result is
// unknown within seconds. When the same message is published again, the broker folds it,
// which shows that the first was stored.
func TestAnUnansweredPublicationIsUnknownAndFoldsWhenRepeated(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]bool{"the wire is silent": false, "the connection is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through, _, p, _ := behindProxy(t)
			m := core.Message{Slot: job.NewSlot("report", at), Node: "n"}
			publish(t, through, "default", core.Message{Slot: job.NewSlot("first", at), Node: "n"}) // makes the transport subscribe its inbox
			p.Deafen()
			answered := make(chan error, 1)
			if err := through.Slots().Send("default", m, nil, func(_ bool, err error) { answered <- err }); err != nil {
				t.Fatal(err)
			}
			if part {
				p.Cut()
			}
			if err := <-answered; !errors.Is(err, job.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want unknown", err)
			}
			p.Heal()
			if _, err := through.Slots().Put(within(t, 20*time.Second), "default", m, nil); err != nil {
				t.Fatal(err)
			}
			n := 0
			for w, err := range through.Slots().Waiting(t.Context(), stream.WaitingFilter{Job: "report"}) {
				if err != nil {
					t.Fatal(err)
				}
				if w.Slot == m.Slot {
					n++
				}
			}
			if n != 1 {
				t.Errorf("stored %d times, want once", n)
			}
		})
	}
}
