package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// hookedLines calls functions before and after it stores or reads entries.
type hookedLines struct {
	consumer.Lines
	beforePut, afterPut, afterRead func()
}

func call(f func()) {
	if f != nil {
		f()
	}
}

func (l *hookedLines) Put(ctx context.Context, e core.Entry, revision uint64) (uint64, error) {
	call(l.beforePut)
	defer call(l.afterPut)
	return l.Lines.Put(ctx, e, revision)
}

func (l *hookedLines) Read(ctx context.Context, name string, from uint64) ([]core.Entry, error) {
	defer call(l.afterRead)
	return l.Lines.Read(ctx, name, from)
}

// countedLocks counts what is asked of the locks, and calls a function before the first write.
type countedLocks struct {
	consumer.Locks
	mu            sync.Mutex
	reads, writes int
	took          time.Duration // a round trip
	first         func()
}

func (l *countedLocks) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	l.mu.Lock()
	l.reads++
	l.mu.Unlock()
	time.Sleep(l.took)
	return l.Locks.Read(ctx, name)
}

func (l *countedLocks) Write(ctx context.Context, lock core.Lock, revision uint64) (uint64, error) {
	l.mu.Lock()
	l.writes++
	first := l.writes == 1
	l.mu.Unlock()
	if first {
		call(l.first)
	}
	time.Sleep(l.took)
	return l.Locks.Write(ctx, lock, revision)
}

func (b *bench) lock() core.Lock {
	b.Helper()
	l, _, err := b.cfg.Locks.Read(b.Context(), "report")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func (b *bench) wantFree() {
	b.Helper()
	if l := b.lock(); len(l.Holders) > 0 || l.Waiting {
		b.Errorf("the lock is %+v, want it free", l)
	}
}

// The slot has found the lock full. Before its entry is stored, the slot that runs leaves, and finds no line.
func TestASlotThatComesIntoTheLineAfterThePlaceBecameFreeIsCalledAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Second)
		b := f.benches[0]
		b.cfg.Lines = &hookedLines{Lines: b.cfg.Lines, beforePut: func() { time.Sleep(5 * time.Second) }}
		stop := b.run()
		f.publish()
		time.Sleep(500 * time.Millisecond)
		late := f.publish()
		time.Sleep(8 * time.Second)
		f.want(late, job.Succeeded, "")
		_ = stop()
		b.wantFree()
	})
}

// The slot that runs leaves, and finds the line empty. Before it writes that into the lock, another worker puts
// a slot into the line. That worker is suspended before it looks at the lock.
func TestAWorkerThatFindsTheLineEmptyLooksOnceMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Second)
		b := f.benches[0]
		stored := b.cfg.Lines
		slow := job.NewSlot("report", time.Now().Add(-time.Minute))
		var once sync.Once
		b.cfg.Lines = &hookedLines{Lines: stored, afterRead: func() {
			once.Do(func() {
				revision := b.write(job.Record{Slot: slow, Queue: "default", State: job.Waiting, Published: time.Now(), Nonce: "x"}, 0)
				if _, err := stored.Put(t.Context(), core.Entry{Slot: slow, At: slow.At}, revision); err != nil {
					t.Error(err)
				}
			})
		}}
		if _, err := b.cfg.Locks.Write(t.Context(), core.Lock{Job: "report", Waiting: true, Line: 1, Nonce: "x"}, 0); err != nil {
			t.Fatal(err)
		}
		stop := b.run()
		first := f.publish() // stands, finds that it may run, and leaves the line empty
		time.Sleep(20 * time.Second)
		_ = stop()
		f.want(first, job.Succeeded, "")
		f.want(slow, job.Succeeded, "")
		b.wantFree()
	})
}

// The node remembers a lock that another node has changed since.
func TestARememberedLockRefusesNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip}, 10*time.Second)
		b := f.benches[0]
		stop := b.run()
		first := f.publish()
		time.Sleep(time.Second)
		// An operator ends the first slot, and another node takes it out of the lock.
		l, revision, err := b.cfg.Locks.Read(t.Context(), "report")
		if err != nil || !l.Holds(first) {
			t.Fatalf("the lock is %+v, %v", l, err)
		}
		if _, err := b.cfg.Locks.Write(t.Context(), core.Lock{Job: "report", Nonce: "x"}, revision); err != nil {
			t.Fatal(err)
		}
		second := f.publish()
		time.Sleep(time.Second)
		f.want(second, job.Running, "")
		b.settled(2)
		_ = stop()
	})
}

// A slot ended a moment ago, and its worker has not left the lock yet.
func TestASlotIsNotSkippedForOneThatHasEnded(t *testing.T) {
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
		b.wantFree()
	})
}

// The worker dies after it has written the outcome, and before it leaves the lock. The message was not acked.
func TestAWorkerLeavesForADeadOneThatHasWrittenTheOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, time.Second)
		b := f.benches[0]
		gone := job.NewSlot("report", time.Now().Add(-time.Minute))
		b.write(job.Record{Slot: gone, State: job.Succeeded, Node: "B", Nonce: "x"}, 0)
		held := core.Lock{Job: "report", Nonce: "x", Holders: []core.LockSlot{{Slot: gone, At: gone.At, Node: "B"}}}
		if _, err := b.cfg.Locks.Write(t.Context(), held, 0); err != nil {
			t.Fatal(err)
		}
		stop := b.run()
		s := f.publish()
		time.Sleep(2 * time.Second)
		f.want(s, job.Waiting, "")
		b.queue.addDelivered("cronce.slot.default.report", core.Message{Slot: gone, JobRevision: 1, Due: gone.At}, 1)
		b.settled(2)
		_ = stop()
		f.want(s, job.Succeeded, "")
		b.wantFree()
	})
}

// If the lock cannot be written, the message is not acked: its next delivery takes the slot out.
func TestASlotLeavesItsLockBeforeItsMessageIsAcked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		store := memstore.New()
		b.cfg.Locks, b.cfg.Lines = store.Locks(), store.Lines()
		b.handle(job.Job{Name: "report", Overlap: job.OverlapQueue}, func(context.Context, job.Run) error {
			store.Locks().Fail(func(string) memstore.Fault { return memstore.Refused })
			return nil
		})
		stop := b.run()
		s := b.publish("report")
		time.Sleep(time.Second)
		if r := b.record(s); r.State != job.Succeeded || len(b.queue.verdicts()) > 0 {
			t.Fatalf("%s, answered %q; want it to succeed without an answer", r.State, b.queue.verdicts())
		}
		store.Locks().Fail(nil)
		b.settled(1)
		_ = stop()
		b.wantFree()
	})
}

// After a restart the stream has forgotten what it folded. A slot that has ended is published
// again and admitted by a free lock, until its claim is refused.
func TestASecondCopyOfAnEndedSlotBlocksNoSlot(t *testing.T) {
	t.Parallel()
	for _, policy := range []job.Overlap{job.OverlapSkip, job.OverlapQueue, job.OverlapReplace} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, job.Job{Name: "report", Overlap: policy}, time.Second)
				b := f.benches[0]
				ended := job.NewSlot("report", time.Now())
				b.write(job.Record{Slot: ended, State: job.Succeeded, Nonce: "x"}, 0)
				stop := b.run()
				b.queue.add(core.Message{Slot: ended, JobRevision: 1, Due: ended.At})
				time.Sleep(time.Second)
				b.wantFree()
				s := f.publish()
				b.settled(2)
				_ = stop()
				f.want(s, job.Succeeded, "")
				if n := len(f.runs.said()); n != 2 {
					t.Errorf("ran %q, want one run", f.runs.said())
				}
			})
		})
	}
}

// Its worker has written the outcome and is slow to leave the lock. Meanwhile an operator reopens the slot.
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
		b.settled(3) // the newer one is acked twice: when it stands in the line, and when it has its outcome
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
				held := core.Lock{Job: "report", Nonce: "x", Holders: []core.LockSlot{{Slot: other, At: other.At, Node: "B"}}}
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
		b.queue.add(core.Message{Slot: other, JobRevision: 1, Offer: 9})
		b.settled(3)
		_ = stop()
		f.want(s, job.Succeeded, "")
	})
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
		for len(f.runs.said()) < 10 {
			time.Sleep(time.Second)
		}
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

// An edit lets the slots of the job run side by side, while some wait.
func TestAllSlotsAreCalledWhenAnEditTakesTheLimitAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapQueue}, 20*time.Second)
		b := f.benches[0]
		registry := &editedRegistry{fakeRegistry: b.registry}
		b.cfg.Registry, b.cfg.Concurrency = registry, 200
		stop := b.run()
		f.publish()
		time.Sleep(time.Second)
		for i := range 120 { // more than one write calls
			b.queue.add(core.Message{Slot: job.Slot{Job: "report", Token: fmt.Sprint("t", i)}, JobRevision: 1})
		}
		time.Sleep(10 * time.Second)
		registry.edit("report", func(j *job.Job) { j.Overlap = job.OverlapAllow })
		time.Sleep(15 * time.Second)
		if n := len(f.runs.said()); n != 2+120 {
			t.Errorf("%d starts and ends, want all 120 to have started", n)
		}
		_ = stop()
	})
}

// Many slots of a job that may run side by side come and end together, far from the broker.
func TestSlotsThatComeAndEndTogetherShareTheWritesOfTheirLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapAllow, Concurrency: 100}, time.Second)
		b := f.benches[0]
		locks := &countedLocks{Locks: b.cfg.Locks, took: 20 * time.Millisecond}
		b.cfg.Locks, b.cfg.Concurrency = locks, 100
		for i := range 100 {
			b.queue.add(core.Message{Slot: job.Slot{Job: "report", Token: fmt.Sprint("t", i)}, JobRevision: 1})
		}
		stop := b.run()
		b.settled(100)
		_ = stop()
		if locks.reads+locks.writes > 20 {
			t.Errorf("%d reads and %d writes of the lock for 100 slots", locks.reads, locks.writes)
		}
		b.wantFree()
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
		retrying := job.Record{Slot: s, Queue: "default", State: job.Retrying, Attempt: 1, MaxAttempts: 3, Nonce: "x", RetryAt: time.Now(), Attempts: []job.Attempt{{Number: 1, Node: "B"}}}
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
		b.queue.add(core.Message{Slot: other, JobRevision: 1, Offer: 9})
		b.settled(3)
		_ = stop()
		f.want(s, job.Succeeded, "")
	})
}

// A slot that waits for its next attempt keeps its place: a slot that comes meanwhile is skipped.
func TestASlotThatIsToBeRetriedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		failed := false
		b.handle(job.Job{Name: "report", Overlap: job.OverlapSkip, Retry: job.Retry{Attempts: 2, Backoff: 10 * time.Second, MaxBackoff: 10 * time.Second}}, func(context.Context, job.Run) error {
			if !failed {
				failed = true
				return errors.New("no")
			}
			return nil
		})
		stop := b.run()
		first := b.publish("report")
		time.Sleep(2 * time.Second)
		second := b.publish("report")
		b.settled(3)
		_ = stop()
		if r := b.record(second); r.State != job.Skipped || !strings.Contains(r.Error, first.ID()) {
			t.Errorf("the second is %s: %s", r.State, r.Error)
		}
		if r := b.record(first); r.State != job.Succeeded || r.Attempt != 2 {
			t.Errorf("the first is %s after %d attempts", r.State, r.Attempt)
		}
		b.wantFree()
	})
}
