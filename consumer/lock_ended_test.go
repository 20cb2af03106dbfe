package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Slots that are in their job's lock although they have ended, or will never run, and slots
// that are delivered again.

// Its worker dies after it writes the record and before it leaves the lock.
func TestASlotWithAnOutcomeHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip}, time.Second)
		b := f.benches[0]
		gone := job.NewSlot("report", time.Now().Add(-time.Minute))
		b.write(job.Record{Slot: gone, State: job.Succeeded, Nonce: "x"}, 0)
		b.hold(gone, gone.At)
		stop := b.run()
		s := f.publish()
		b.settled(1)
		_ = stop()
		f.want(s, job.Succeeded, "")
		if l, _, err := b.cfg.Locks.Read(t.Context(), "report"); err != nil || len(l.Holders) != 0 {
			t.Errorf("the lock is %+v, %v, want it free", l, err)
		}
	})
}

// The lock has admitted the slot, but the slot has no record, and its message was purged from the
// stream. So no worker will run it or write its record.
func TestASlotThatIsTooOldToRunHoldsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slot func(at time.Time) job.Slot
		age  time.Duration
		want job.State
	}{
		"a slot":                      {func(at time.Time) job.Slot { return job.NewSlot("report", at) }, horizon + lease + time.Second, job.Succeeded},
		"a triggered run":             {func(time.Time) job.Slot { return job.Slot{Job: "report", Token: "x"} }, horizon + lease + time.Second, job.Succeeded},
		"one that may be claimed yet": {func(at time.Time) job.Slot { return job.NewSlot("report", at) }, horizon + lease/2, job.Skipped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip}, time.Second)
				b, at := f.benches[0], time.Now().Add(-c.age)
				b.hold(c.slot(at), at)
				stop := b.run()
				s := f.publish()
				b.settled(1)
				_ = stop()
				f.want(s, c.want, "")
			})
		})
	}
}

// A slot that ends admits as many slots as its job's definition says by then, not as many as
// when the slot began.
func TestPlacesThatAnEditTookAreNotGivenOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue, Concurrency: 2}, 20*time.Second)
		b := f.benches[0]
		registry := &editedRegistry{fakeRegistry: b.registry}
		b.cfg.Registry = registry
		stop := b.run()
		for range 5 {
			f.publish()
			time.Sleep(time.Second)
		}
		before := len(f.runs.said())
		registry.edit("report", func(j *job.Job) { j.Concurrency = 1 })
		b.settled(5)
		_ = stop()
		running := 0
		for i, said := range f.runs.said() {
			if strings.HasPrefix(said, "end") {
				running--
				continue
			}
			if running++; i >= before && running > 1 {
				t.Errorf("%d run at once after the edit, at %q of %q", running, said, f.runs.said())
			}
		}
	})
}

// editedRegistry changes while it is read.
type editedRegistry struct {
	mu sync.Mutex
	fakeRegistry
}

func (r *editedRegistry) Known(string, uint64) *plans.Entry { return nil }

func (r *editedRegistry) Lookup(ctx context.Context, name string, atLeast uint64) (plans.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fakeRegistry.Lookup(ctx, name, atLeast)
}

func (r *editedRegistry) edit(name string, how func(*job.Job)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.fakeRegistry[name]
	how(&e.Job)
	e.Revision++
	r.fakeRegistry[name] = e
}

// After a restart the stream has forgotten what it folded. A slot that has ended is published
// again and admitted by a free lock, until its claim is refused.
func TestASecondCopyOfAnEndedSlotBlocksNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip}, time.Second)
		b := f.benches[0]
		gone := job.NewSlot("report", time.Now().Add(-time.Minute))
		b.write(job.Record{Slot: gone, State: job.Succeeded, Nonce: "x"}, 0)
		claiming, answer := make(chan struct{}), make(chan struct{})
		b.ledger.before = func(r job.Record, _ uint64) error {
			if r.Slot == gone {
				close(claiming)
				<-answer
			}
			return nil
		}
		stop := b.run()
		b.queue.add(core.Message{Slot: gone, JobRevision: 1, Due: gone.At})
		<-claiming
		s := f.publish()
		b.settled(1)
		close(answer)
		b.settled(2)
		_ = stop()
		f.want(s, job.Succeeded, "")
	})
}

// An operator reopens a slot just when another slot has found that it has ended. The lock
// still has the reopened slot, or admits it anew.
func TestAReopenedSlotStaysInItsLockWhenOthersSawItEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		left     bool
		backfill bool // the message is that of the new start
		count    int  // earlier deliveries of it
	}{
		{"it had not left", false, true, 0},
		{"it had left", true, true, 0},
		{"an old message of it comes", false, false, 0},
		{"an old message of it comes again", false, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapQueue}, 10*time.Second)
				a, b := f.benches[0], f.benches[1]
				s := job.NewSlot("report", time.Now().Add(-time.Minute))
				ended := job.Record{Slot: s, State: job.Failed, Attempt: 1, MaxAttempts: 1, Attempts: []job.Attempt{{Number: 1}}, Nonce: "x"}
				revision := a.write(ended, 0)
				locks := a.cfg.Locks
				held := core.Lock{Job: "report", Nonce: "x", Holders: []core.LockSlot{{Slot: s, At: s.At}}}
				at, err := locks.Write(t.Context(), held, 0)
				if err != nil {
					t.Fatal(err)
				}
				gate := watched(locks)
				gate.stop = 2 // the first write is a guess that there is no lock, and is refused
				a.cfg.Locks = gate
				b.queue = newQueue() // the reopened slot goes to b
				stopA, stopB := a.run(), b.run()
				newer := f.publish()
				<-gate.reached // a has seen that s has ended, and sleeps before it takes the place
				if c.left {
					if _, err := locks.Write(t.Context(), core.Lock{Job: "report", Nonce: "y"}, at); err != nil {
						t.Fatal(err)
					}
				}
				a.write(core.Reopen(ended, "alice", 1, time.Now()), revision)
				m := core.Message{Slot: s, JobRevision: 1, Due: s.At}
				if c.backfill {
					m.Backfill, m.Offer = true, 1000
				}
				b.queue.addDelivered("cronce.slot.default.report", m, c.count)
				time.Sleep(time.Second)
				close(gate.open)
				a.settled(1)
				b.settled(1)
				_, _ = stopA(), stopB()
				f.want(s, job.Succeeded, "")
				f.want(newer, job.Succeeded, "")
				if most := f.runs.most["report"]; most != 1 {
					t.Errorf("%d ran at once: %q", most, f.runs.said())
				}
			})
		})
	}
}

// The same, if its worker has written the outcome and is slow to leave the lock.
func TestAWorkerThatIsSlowToLeaveDoesNotLeaveForAReopenedSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapQueue, Retry: job.Retry{Attempts: 1}}, 10*time.Second)
		a, b := f.benches[0], f.benches[1]
		failed, leave := make(chan job.Record, 1), make(chan struct{})
		a.handlers["report"] = func(context.Context, job.Run) error { return errors.New("torn") }
		a.ledger.after = func(r job.Record) {
			if r.State == job.Failed {
				failed <- r
				<-leave
			}
		}
		b.queue = newQueue() // the reopened slot, and the next, go to b
		stopA, stopB := a.run(), b.run()
		s := f.publish()
		_, revision, err := a.ledger.Read(t.Context(), (<-failed).Slot)
		time.Sleep(time.Millisecond) // no worker is as quick as this clock
		if err != nil {
			t.Fatal(err)
		}
		a.write(core.Reopen(a.record(s), "alice", 1, time.Now()), revision)
		b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At, Backfill: true, Offer: 1000})
		time.Sleep(time.Second)
		newer := b.publish("report")
		time.Sleep(time.Second)
		close(leave)
		b.settled(2)
		_, _ = stopA(), stopB()
		f.want(s, job.Succeeded, "")
		f.want(newer, job.Succeeded, "")
		if most := f.runs.most["report"]; most != 1 {
			t.Errorf("%d ran at once: %q", most, f.runs.said())
		}
	})
}

// Another worker runs the slot just before the claim, and an operator reopens it. Meanwhile its
// place has passed to another slot.
func TestASlotThatLostItsClaimAsksItsLockAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Second)
		b := f.benches[0]
		other := job.NewSlot("report", time.Now().Add(-time.Minute))
		running := job.Record{Slot: other, State: job.Running, Node: "B", Attempt: 1, MaxAttempts: 1, Nonce: "x"}
		fence := b.write(running, 0)
		var once sync.Once
		b.ledger.before = func(r job.Record, _ uint64) error {
			once.Do(func() {
				ended := job.Record{Slot: r.Slot, State: job.Failed, Attempt: 1, MaxAttempts: 1, Attempts: []job.Attempt{{Number: 1}}, Nonce: "x"}
				if _, err := b.ledger.Ledger.Write(t.Context(), core.Reopen(ended, "alice", 1, time.Now()), 0); err != nil {
					t.Error(err)
				}
				_, at, err := b.cfg.Locks.Read(t.Context(), "report")
				if err != nil {
					t.Error(err)
				}
				held := core.Lock{Job: "report", Nonce: "x", Holders: []core.LockSlot{{Slot: other, At: other.At}}}
				if _, err := b.cfg.Locks.Write(t.Context(), held, at); err != nil {
					t.Error(err)
				}
			})
			return nil
		}
		stop := b.run()
		s := f.publish()
		time.Sleep(5 * time.Second)
		if said := f.runs.said(); len(said) > 0 {
			t.Errorf("it ran beside the other: %q", said)
		}
		running.State, running.Nonce = job.Succeeded, "y"
		if _, err := b.ledger.Ledger.Write(t.Context(), running, fence); err != nil {
			t.Fatal(err)
		}
		b.settled(1)
		_ = stop()
		f.want(s, job.Succeeded, "")
	})
}

// The same, under a policy by which a new slot ends the one that runs.
func TestASecondCopyOfAnEndedSlotReplacesNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapReplace}, 3*time.Second)
		b := f.benches[0]
		ended := job.NewSlot("report", time.Now())
		b.write(job.Record{Slot: ended, State: job.Succeeded, Nonce: "x"}, 0)
		stop := b.run()
		triggered := job.Slot{Job: "report", Token: "x"}
		b.queue.add(core.Message{Slot: triggered, JobRevision: 1})
		time.Sleep(time.Second)
		b.queue.add(core.Message{Slot: ended, JobRevision: 1, Due: ended.At})
		b.settled(2)
		_ = stop()
		f.want(triggered, job.Succeeded, "")
		if n := len(f.runs.said()); n != 2 {
			t.Errorf("ran %q, want one run", f.runs.said())
		}
	})
}

// The policy is not known any more, but the slots in the lock were admitted by it.
func TestARetryOfADeletedJobWaitsForTheSlotsInTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip}, time.Second)
		b := f.benches[0]
		other := job.NewSlot("report", time.Now().Add(-time.Minute))
		running := job.Record{Slot: other, State: job.Running, Node: "B", Attempt: 1, MaxAttempts: 3, Nonce: "x"}
		revision := b.write(running, 0)
		b.hold(other, other.At)
		s := job.NewSlot("report", time.Now())
		retrying := job.Record{Slot: s, State: job.Retrying, Attempt: 1, MaxAttempts: 3, Nonce: "x", RetryAt: time.Now(), Attempts: []job.Attempt{{Number: 1, Node: "B"}}}
		b.write(retrying, 0)
		delete(b.registry, "report")
		stop := b.run()
		b.publish("report")
		time.Sleep(5 * time.Second)
		if said := f.runs.said(); len(said) > 0 {
			t.Errorf("it ran beside the other: %q", said)
		}
		running.State, running.Nonce = job.Succeeded, "y"
		b.write(running, revision)
		b.settled(1)
		_ = stop()
		f.want(s, job.Succeeded, "")
	})
}
