package kv

import (
	"errors"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/natstest"
	"github.com/cronce-io/cronce/job"
)

// A process that slept between leaving a slot here and handing it to the connection does
// not send it any more: others may have published it, and their copies be forgotten.
func TestWhatWaitedWhileTheProcessSleptIsNotSent(t *testing.T) {
	t.Parallel()
	s := natstest.Run(t)
	store, err := Open(t.Context(), s.JetStream(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		slept time.Duration
		sent  bool
	}{{0, true}, {publishTimeout / 2, true}, {publishTimeout + time.Second, false}} {
		p := store.publisher
		p.mu.Lock()
		p.busy = true // so that nothing is handed over before it was put to sleep
		p.mu.Unlock()
		told := make(chan error, 1)
		slot := job.NewSlot("report", time.Unix(1_800_000_000, 0).Add(c.slept))
		if err := store.Slots().Send("default", job.Message{Slot: slot, Node: "n"}, nil, func(_ bool, err error) { told <- err }); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.since = p.since.Add(-c.slept)
		p.mu.Unlock()
		p.handOver()
		if err := <-told; (err == nil) != c.sent || err != nil && !errors.Is(err, job.ErrUnknown) {
			t.Errorf("after %v: %v, want it sent: %v, else unknown", c.slept, err, c.sent)
		}
	}
	stream, err := s.JetStream().Stream(t.Context(), "cronce_slots")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d slots are stored, want those two that were sent in time", n)
	}
}
