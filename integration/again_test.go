//go:build unix

package integration

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// Duplicate windows end, and a server that restarts forgets the IDs of messages that were removed. Only
// the ledger remembers that a slot has its outcome.
func TestFinishedSlotPublishedAgainIsNotRun(t *testing.T) {
	t.Parallel()
	onEachServer(t, testFinishedSlotPublishedAgain)
}

func testFinishedSlotPublishedAgain(t *testing.T, s *site) {
	published := make(chan *nats.Msg, 16) // with a copy by each producer
	if _, err := s.nc.ChanSubscribe("cronce.slot.>", published); err != nil {
		t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	instant := soon()
	file := s.jobs(`echo "$CRONCE_SLOT_ID" >>touched`, "name: once, "+at(instant))
	s.worker("w1", file, "--lease", lease.String())
	id := slotID("once", instant)
	first := s.ends(id, "succeeded")
	original := <-published
	s.drained()

	again := func(msgID string) {
		t.Helper()
		msg := nats.NewMsg(original.Subject)
		msg.Header, msg.Data = original.Header, original.Data
		msg.Header.Set("Nats-Msg-Id", msgID)
		ack, err := s.js.PublishMsg(t.Context(), msg)
		if err != nil {
			t.Fatal(err)
		}
		if ack.Duplicate {
			t.Fatalf("the stream still knows %s: this shows nothing", msgID)
		}
		s.drained()
		if now := s.record(id); now != first {
			t.Errorf("the record changed from %+v to %+v", first, now)
		}
		if lines := s.touched(); len(lines) != 1 {
			t.Errorf("it ran again: %q", lines)
		}
	}
	again(id + "/r2")
	s.restartServer(stopServer)
	again(id)
	s.restartServer((*process).kill)
	again(id)
}
