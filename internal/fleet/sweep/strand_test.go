package sweep_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/sweep"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
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
	if _, err := s.Slots().Publish(t.Context(), "default", core.Message{Slot: run}, payload); err != nil {
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

// crowd is a broker on which the messages of a stuck run and of many other slots are stranded.
type crowd struct {
	*pair
	holder job.Slot
	sent   []core.Message
	bodies []string
}

func (c *crowd) Publish(_ context.Context, _ string, m core.Message, payload []byte) (bool, error) {
	if m.Slot.Whole() == c.holder {
		c.sent, c.bodies = append(c.sent, m), append(c.bodies, string(payload))
	}
	return false, nil
}

// The methods of these types have the names of methods of pair.
type (
	heldLock struct{ kv.LockChange }
	oneJob   struct{ plans.Entry }
)

func (l heldLock) Changes(context.Context, *wire.Cursor) iter.Seq2[kv.LockChange, error] {
	return func(yield func(kv.LockChange, error) bool) { yield(l.LockChange, nil) }
}

func (j oneJob) Read(context.Context, string) (plans.Entry, uint64, error) { return j.Entry, 1, nil }

// The messages of the others take all the room that a pass has for payloads. They may even wait for
// the lock that the run holds.
func TestATriggeredRunInItsLockIsNotEndedWhileItsMessageIsStranded(t *testing.T) {
	run := job.Slot{Job: "report", Token: "k"}
	for name, c := range map[string]struct {
		stranded job.Slot
		age      time.Duration // of the run's message
		offered  int
	}{
		"the run":        {run, time.Hour, 1},
		"one shard":      {run.WithShard(2, 3), time.Hour, 1},
		"a worker's run": {run, time.Second, 0}, // its worker may still have the message
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			b := &crowd{pair: &pair{}, holder: run}
			for n := range sweep.MaxStranded {
				other := job.Slot{Job: "other", Token: strconv.Itoa(n)}
				b.waiting = append(b.waiting, stream.WaitingSlot{Message: core.Message{Slot: other}, Queue: "default", Sequence: uint64(n + 1), Published: now.Add(-time.Hour), Stranded: true})
			}
			b.waiting = append(b.waiting, stream.WaitingSlot{Message: core.Message{Slot: c.stranded}, Queue: "default", Sequence: 5000, Published: now.Add(-c.age), Payload: []byte("own"), Stranded: true})
			cfg := sweep.Config{Node: "n", Ledger: ledger{b.pair}, Slots: b, Timers: timers{}, Seen: &sweep.Seen{}, Now: func() time.Time { return now }, Lease: lease, Horizon: 24 * time.Hour,
				Locks:    heldLock{kv.LockChange{Lock: core.Lock{Job: "report", Holders: []core.LockSlot{{Slot: run}}}, Time: now.Add(-time.Hour)}},
				Registry: oneJob{plans.Entry{Definition: plans.Definition{Job: job.Job{Name: "report"}}}},
				After:    func(string) []plans.Entry { return nil }, Late: func() []plans.Entry { return nil }, Offered: func(job.Slot) {},
			}
			if err := sweep.New(cfg).Pass(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if len(b.sent) != c.offered {
				t.Fatalf("published %+v, want %d messages", b.sent, c.offered)
			}
			for i, m := range b.sent {
				if m.Slot != c.stranded || m.Refused != "" || b.bodies[i] != "own" {
					t.Errorf("published %+v with payload %q, want the stranded message again", m, b.bodies[i])
				}
			}
		})
	}
}

// shelf is a broker that keeps what is published, for a queue without workers.
type shelf struct {
	*pair
	open func(job.Slot) bool // whether the slot has a record, of a run that retries later
}

// shelfLedger reads the records from the shelf.
type shelfLedger struct {
	ledger
	shelf *shelf
}

func (l shelfLedger) Read(ctx context.Context, slot job.Slot) (job.Record, uint64, error) {
	return l.shelf.Read(ctx, slot)
}

func (l *shelf) Read(_ context.Context, slot job.Slot) (job.Record, uint64, error) {
	if l.open(slot) {
		return job.Record{Slot: slot, State: job.Retrying, RetryAt: time.Now().Add(time.Hour)}, 7, nil
	}
	return job.Record{}, 0, job.ErrNotFound
}

func (l *shelf) Publish(_ context.Context, queue string, m core.Message, _ []byte) (bool, error) {
	l.waiting = append(l.waiting, stream.WaitingSlot{Message: m, Queue: queue, Sequence: uint64(len(l.waiting) + 1), Published: time.Now()})
	return false, nil
}

func (l *shelf) Waiting(_ context.Context, f stream.WaitingFilter) iter.Seq2[stream.WaitingSlot, error] {
	return func(yield func(stream.WaitingSlot, error) bool) {
		for _, w := range slices.Clone(l.waiting) {
			if (w.Stranded || !f.Stranded) && !yield(w, nil) {
				return
			}
		}
	}
}

// strand adds a stranded message of each slot.
func (l *shelf) strand(slots ...job.Slot) {
	for _, slot := range slots {
		l.waiting = append(l.waiting, stream.WaitingSlot{Message: core.Message{Slot: slot}, Queue: "default", Sequence: uint64(len(l.waiting) + 1), Published: time.Now().Add(-time.Hour), Stranded: true})
	}
}

// offers returns how often the slot was published.
func (l *shelf) offers(slot job.Slot) (n int) {
	for _, w := range l.waiting {
		if w.Slot == slot && !w.Stranded {
			n++
		}
	}
	return n
}

func TestASlotBehindManyStrandedMessagesIsOffered(t *testing.T) {
	var others []job.Slot
	for n := range sweep.MaxStranded {
		others = append(others, job.Slot{Job: "other", Token: strconv.Itoa(n)})
	}
	behind := job.Slot{Job: "report", Token: "behind"}
	for name, open := range map[string]bool{"the others have a record": true, "the others have a new message": false} {
		t.Run(name, func(t *testing.T) {
			b := &shelf{pair: &pair{}, open: func(slot job.Slot) bool { return open && slot != behind }}
			b.strand(append(slices.Clone(others), behind)...)
			s := newSweeper(sweep.Config{Node: "n", Ledger: shelfLedger{ledger{b.pair}, b}, Slots: b}, func() {})
			for range 5 {
				if err := s.Pass(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			if n := b.offers(behind); n != 1 {
				t.Errorf("the slot was offered %d times, want once", n)
			}
			if n := b.offers(others[0]); n > 1 || n == 1 == open {
				t.Errorf("a slot before it was offered %d times", n)
			}
		})
	}
}
