package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// The places of slots that have ended, in a lock that other slots wait for.

// runningHolder makes a slot of another node the holder of the job's lock. The returned function
// ends the slot, which stays in the lock.
func (b *bench) runningHolder() (end func()) {
	b.Helper()
	held := job.NewSlot("report", time.Now().Add(-time.Minute))
	revision := b.write(job.Record{Slot: held, State: job.Running, Node: "Z", Attempt: 1, Nonce: "x"}, 0)
	b.hold(held, held.At)
	return func() {
		if _, err := b.ledger.Write(b.Context(), job.Record{Slot: held, State: job.Succeeded, Attempt: 1, Nonce: "y"}, revision); err != nil {
			b.Error(err)
		}
	}
}

// The second waiting slot finds that the holder has ended, and takes it out of the lock. The
// holder's worker, which wakes slots when it leaves the lock, finds nothing to do there.
func TestTheSlotThatTakesAnEndedOneOutOfTheLockWakesTheFirstInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapQueue}, 100*time.Millisecond)
		b := f.benches[0]
		end := b.runningHolder()
		stop := f.run()
		began := time.Now()
		f.publish() // asks the lock every second
		time.Sleep(1500 * time.Millisecond)
		f.publish() // asks after two seconds, at 3.5 s
		time.Sleep(1700 * time.Millisecond)
		end() // at 3.2 s
		b.settled(2)
		took := time.Since(began)
		stop()
		if most := 3700*time.Millisecond + 100*time.Millisecond; took > most {
			t.Errorf("both had ended after %v, want at most %v", took, most)
		}
	})
}

// beforeRead calls a function before each read of a lock.
type beforeRead struct {
	consumer.Locks
	call func(read int)
	n    int
}

func (l *beforeRead) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	l.n++
	l.call(l.n)
	return l.Locks.Read(ctx, name)
}

// Another worker takes the holder out of the lock after this slot has read the holder's record,
// and wakes this slot before it is in the waitlist.
func TestASlotWhosePlaceBecomesFreeBeforeItWaitsDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, 100*time.Millisecond)
		b := f.benches[0]
		end := b.runningHolder()
		store := b.cfg.Locks
		b.cfg.Locks = &beforeRead{Locks: store, call: func(read int) {
			if read != 2 { // the second one checks that it has to wait
				return
			}
			end()
			lock, revision, err := store.Read(t.Context(), "report")
			if err != nil || len(lock.Holders) != 1 || len(lock.Waiting) != 1 {
				t.Errorf("the lock is %+v, %v, want one holder and one waiting slot", lock, err)
			}
			lock.Holders, lock.Nonce = nil, "z"
			if _, err := store.Write(t.Context(), lock, revision); err != nil {
				t.Error(err)
			}
		}}
		stop := b.run()
		began := time.Now()
		s := f.publish()
		b.settled(1)
		took := time.Since(began)
		_ = stop()
		f.want(s, job.Succeeded, "")
		if took > 200*time.Millisecond {
			t.Errorf("it had ended after %v, want no wait", took)
		}
	})
}
