//go:build long && unix

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// waits is an action that goes on until the test lets it end.
const waits = `
echo "start $CRONCE_SLOT_ID $CRONCE_ATTEMPT" >>touched
until [ -e goon ]; do sleep 0.1; done
echo "end $CRONCE_SLOT_ID $CRONCE_ATTEMPT" >>touched
`

// running starts two workers on a job that fires once, and returns when its slot
// runs. It goes on until "goon" is there.
func (s *site) running(args ...string) (id string, workers []*process) {
	s.t.Helper()
	instant := soon()
	file := s.jobs(waits, "name: work, "+at(instant))
	id = slotID("work", instant)
	for _, name := range []string{"w1", "w2"} {
		w := s.worker(name, file, args...)
		w.says("node is up")
		workers = append(workers, w)
	}
	eventually(s.t, "the slot to run", func() bool { return s.record(id).State == "running" && len(s.touched()) == 1 })
	return id, workers
}

// The ledger is full, so the outcome of a run cannot be recorded. The message is not acked, and the slot
// does not run again. When the ledger has room, the outcome is recorded.
func TestFullLedgerHoldsTheAckBack(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	id, workers := s.running()
	owner := workers[0]
	if strings.HasPrefix(s.record(id).Node, "w2-") {
		owner = workers[1]
	}
	s.limitLedger(1)
	s.write("goon", "")
	owner.says("outcome cannot be recorded")
	stuck := s.record(id)
	began := time.Now()
	eventually(t, "some tries more", func() bool { return time.Since(began) > 3*time.Second })
	if now := s.record(id); now != stuck || now.State != "running" {
		t.Errorf("the record is %+v, and was %+v", now, stuck)
	}
	if n := s.waiting("default"); n != 1 {
		t.Errorf("%d messages wait; that of the slot must not be acked", n)
	}
	s.limitLedger(-1)
	if r := s.ends(id, "succeeded"); r.Attempt != 1 {
		t.Errorf("it was tried again: %+v", r)
	}
	eventually(t, "the ack", func() bool { return s.waiting("default") == 0 })
	if lines := s.touched(); len(lines) != 2 {
		t.Errorf("want one run, got %q", lines)
	}
}

// limitLedger bounds the size of the ledger. -1: no bound.
func (s *site) limitLedger(bytes int64) {
	s.t.Helper()
	s.limit("KV_cronce_ledger", bytes)
}

// limit bounds the size of a stream, which refuses more. -1: no bound.
func (s *site) limit(stream string, bytes int64) {
	s.t.Helper()
	of, err := s.js.Stream(s.t.Context(), stream)
	if err == nil {
		cfg := of.CachedInfo().Config
		cfg.MaxBytes, cfg.Discard = bytes, jetstream.DiscardNew
		_, err = s.js.UpdateStream(s.t.Context(), cfg)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// waiting returns how many messages of the queue are not acked yet.
func (s *site) waiting(queue string) uint64 {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "cronce_slots")
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := stream.Info(s.t.Context(), jetstream.WithSubjectFilter("cronce.slot."+queue+".>"))
	if err != nil {
		s.t.Fatal(err)
	}
	n := uint64(0)
	for _, messages := range info.State.Subjects {
		n += messages
	}
	return n
}
