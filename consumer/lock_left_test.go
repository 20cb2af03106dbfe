package consumer_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// Short slots that have ended and were left in their job's lock.

// writtenLocks counts the writes and those that were won, and waits before one of them.
type writtenLocks struct {
	consumer.Locks
	writes, won   atomic.Int32
	reads         atomic.Int32
	stop          int32 // the number of the write before which it stops; 0: none
	reached, open chan struct{}
}

func watched(l consumer.Locks) *writtenLocks {
	return &writtenLocks{Locks: l, reached: make(chan struct{}), open: make(chan struct{})}
}

func (l *writtenLocks) Write(ctx context.Context, lock core.Lock, revision uint64) (uint64, error) {
	if l.writes.Add(1) == l.stop {
		close(l.reached)
		<-l.open
	}
	revision, err := l.Locks.Write(ctx, lock, revision)
	if err == nil {
		l.won.Add(1)
	}
	return revision, err
}

func (l *writtenLocks) Send(ctx context.Context, lock core.Lock, revision uint64, answered func(uint64, error)) {
	go func() { answered(l.Write(ctx, lock, revision)) }()
}

func (l *writtenLocks) Read(ctx context.Context, name string) (core.Lock, uint64, error) {
	l.reads.Add(1)
	return l.Locks.Read(ctx, name)
}

// The next slot replaces it with the write with which it enters, on any node.
func TestAShortSlotCostsItsLockOneWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapSkip}, 100*time.Millisecond)
		locks := watched(f.benches[0].cfg.Locks)
		var slots []job.Slot
		for i := range 6 {
			b := f.benches[i/3]
			b.cfg.Locks = locks
			stop := b.run()
			slots = append(slots, f.publish())
			time.Sleep(time.Second)
			slots = append(slots, f.publish())
			time.Sleep(time.Second)
			_ = stop()
		}
		for _, s := range slots {
			f.want(s, job.Succeeded, "")
		}
		if n := int(locks.won.Load()); n != len(slots) {
			t.Errorf("%d slots wrote their lock %d times", len(slots), n)
		}
	})
}

// A triggered run waits under "skip" too. Its node gets no wake-up when the short slot ends.
func TestASlotThatWaitsForAShortOneOfAnotherNodeIsAdmittedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const short = 400 * time.Millisecond
		f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapSkip}, short)
		a, b := f.benches[0], f.benches[1]
		b.queue = newQueue()
		stopA, stopB := a.run(), b.run()
		first, began := f.publish(), time.Now()
		time.Sleep(short / 4)
		triggered := job.Slot{Job: "report", Token: "x"}
		b.queue.add(core.Message{Slot: triggered, JobRevision: 1})
		for len(f.runs.said()) < 3 {
			time.Sleep(time.Millisecond)
		}
		if after := time.Since(began); after > 2*short {
			t.Errorf("it started %v after one that took %v", after, short)
		}
		time.Sleep(time.Second)
		_, _ = stopA(), stopB()
		f.want(first, job.Succeeded, "")
		f.want(triggered, job.Succeeded, "")
	})
}

// A node that remembers that the slot has ended does not replace it: the lock has been
// written since.
func TestAShortSlotThatIsReopenedStaysInItsLockWhenOthersSawItEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between bool
		count   int // of deliveries before: a slot that comes again is looked at otherwise
	}{
		"before they look":                            {false, 0},
		"when they have looked":                       {true, 0},
		"before they look at one that came back":      {false, 1},
		"when they have looked at one that came back": {true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, job.Job{Name: "report", Overlap: job.OverlapSkip, Retry: job.Retry{Attempts: 1}}, 10*time.Second)
				a, b := f.benches[0], f.benches[1]
				a.handlers["report"] = func(_ context.Context, run job.Run) error {
					f.runs.note("start", run, 1)
					defer f.runs.note("end", run, -1)
					return errors.New("torn")
				}
				locks := watched(a.cfg.Locks)
				a.cfg.Locks = locks
				if c.between {
					locks.stop = 2
				}
				b.queue = newQueue() // the reopened slot goes to b
				stopA, stopB := a.run(), b.run()
				s := f.publish()
				a.settled(1)
				ended, revision, err := a.ledger.Read(t.Context(), s)
				if err != nil || ended.State != job.Failed {
					t.Fatalf("%s is %s, %v", s, ended.State, err)
				}
				time.Sleep(time.Second)
				newer := s
				publish := func() job.Slot {
					s := job.NewSlot("report", time.Now())
					a.queue.addDelivered("cronce.slot.default.report", core.Message{Slot: s, JobRevision: 1, Due: s.At}, c.count)
					return s
				}
				if c.between {
					newer = publish()
					<-locks.reached
				}
				a.write(core.Reopen(ended, "alice", 1, time.Now()), revision)
				b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At, Backfill: true, Offer: 1000})
				time.Sleep(time.Second)
				if c.between {
					close(locks.open)
				} else {
					newer = publish()
				}
				a.settled(2)
				b.settled(1)
				_, _ = stopA(), stopB()
				f.want(s, job.Succeeded, "")
				f.want(newer, job.Skipped, s.ID())
				if most := f.runs.most["report"]; most != 1 {
					t.Errorf("%d ran at once: %q", most, f.runs.said())
				}
			})
		})
	}
}

// It has not ended: a slot that comes between two attempts is skipped.
func TestASlotThatIsToBeRetriedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip, Retry: job.Retry{Backoff: 5 * time.Second}}, 0)
		b := f.benches[0]
		b.handlers["report"] = func(_ context.Context, run job.Run) error {
			if f.runs.note("start", run, 0); run.Attempt == 1 {
				return errors.New("no")
			}
			return nil
		}
		stop := b.run()
		first := f.publish()
		time.Sleep(time.Second)
		second := f.publish()
		b.settled(3)
		_ = stop()
		f.want(first, job.Succeeded, "")
		f.want(second, job.Skipped, first.ID())
	})
}

// If the last cache miss found no lock on the broker, the next one assumes that there is none.
func TestTheFirstSlotOfAJobCostsItsLockOneWriteAndNoRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, job.Job{Name: "report", Overlap: job.OverlapSkip}, time.Millisecond)
		b := f.benches[0]
		names := append(others(b, 9), "report")
		locks := watched(b.cfg.Locks)
		for started := range 2 {
			locks.reads.Store(0)
			locks.writes.Store(0)
			b.cfg.Locks = locks
			stop := b.run()
			for _, name := range names {
				b.publish(name)
				time.Sleep(time.Second)
			}
			b.settled(len(names) * (started + 1))
			_ = stop()
			reads, writes := int(locks.reads.Load()), int(locks.writes.Load())
			switch {
			case started == 0 && (reads > 0 || writes != len(names)):
				t.Errorf("the first slots of %d jobs: %d reads, %d writes", len(names), reads, writes)
			case started == 1 && (reads != len(names) || writes != len(names)+1):
				// One write is refused: from then on the locks are read.
				t.Errorf("the first slots of %d jobs after a start: %d reads, %d writes", len(names), reads, writes)
			}
		}
		if n := len(f.runs.said()); n != 4*len(names) {
			t.Errorf("%d jobs ran twice: %q", len(names), f.runs.said())
		}
	})
}

// others registers n more jobs like the bench's own.
func others(b *bench, n int) (names []string) {
	like := b.registry["report"].Job
	h := b.handlers["report"]
	for i := range n {
		like.Name = "other-" + strconv.Itoa(i)
		b.handle(like, h)
		names = append(names, like.Name)
	}
	return names
}
