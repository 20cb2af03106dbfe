package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/job"
)

func TestStoppingGivesBackWhatNeverStartedAndLetsTheRestFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { time.Sleep(10 * time.Second); return nil })
		stop := b.run()
		first := b.publish("report")
		time.Sleep(time.Second)
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		second := b.publish("report") // meets the request that still stands
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if v := b.queue.verdicts(); !slices.Contains(v, "later(100ms) "+second.ID()) || !slices.Contains(v, "ack "+first.ID()) {
			t.Errorf("verdicts %q, want the first acked and the second given back", v)
		}
		if _, _, err := b.ledger.Read(t.Context(), second); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("the slot that never started has a record: %v", err)
		}
	})
}

func TestAfterItsGraceAHandlerIsCancelledAndItsSlotFreeForOthers(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]job.State{3: job.Retrying, 1: job.Failed} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.cfg.Grace = 5 * time.Second
				b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: attempts}}, func(ctx context.Context, _ job.Run) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
				stop := b.run()
				slot := b.publish("report")
				time.Sleep(1500 * time.Millisecond)
				asked := time.Now()
				_ = stop()
				if took := time.Since(asked); took < 5*time.Second || took > 7*time.Second {
					t.Errorf("it took %v, want the grace of 5s and little more", took)
				}
				r := b.record(slot)
				if r.State != want || !strings.Contains(r.Error, job.ErrStopping.Error()) {
					t.Errorf("%s %q, want %s because the worker stops", r.State, r.Error, want)
				}
				if want == job.Retrying && r.RetryAt.After(time.Now()) {
					t.Errorf("the next attempt waits until %v", r.RetryAt)
				}
			})
		})
	}
}

func TestStoppingNamesTheSlotsThatRunByTheirIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log strings.Builder
		b.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { time.Sleep(10 * time.Second); return nil })
		stop := b.run()
		slot := b.publish("report")
		time.Sleep(time.Second)
		_ = stop()
		if want := "slots=[" + slot.ID() + "]"; !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	})
}

// A grace of zero is -1 in the configuration, because its zero means the default.
func TestStoppingLogsTheGraceAsItWasSet(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]string{-1: "grace=0s", 5 * time.Second: "grace=5s"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var log strings.Builder
				b.cfg.Logger, b.cfg.Grace = slog.New(slog.NewTextHandler(&log, nil)), grace
				b.handle(job.Job{Name: "report"}, func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return context.Cause(ctx) })
				stop := b.run()
				b.publish("report")
				time.Sleep(time.Second)
				_ = stop()
				if !strings.Contains(log.String(), want+" ") {
					t.Errorf("no %s in %s", want, log.String())
				}
			})
		})
	}
}

// stopWhileClaiming publishes a slot and stops the worker while the claim is on its way. The answer
// comes 3 s later.
func (b *bench) stopWhileClaiming(name string) job.Slot {
	claiming, answer := make(chan struct{}), make(chan struct{})
	b.ledger.before = func(job.Record, uint64) error {
		b.ledger.before = nil
		close(claiming)
		<-answer
		return nil
	}
	stop := b.run()
	slot := b.publish(name)
	<-claiming
	time.AfterFunc(3*time.Second, func() { close(answer) })
	_ = stop()
	return slot
}

// At most once must not become not at all: an attempt that never began does not count.
func TestAClaimWonAfterTheGraceIsGivenBackUncounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Grace = -1
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error {
			t.Error("the handler was started with its time over")
			return nil
		})
		slot := b.stopWhileClaiming("report")
		if r := b.record(slot); r.State != job.Retrying || r.Attempt != 0 || len(r.Attempts) != 0 {
			t.Errorf("%s after %d attempts %+v, want it given back with none", r.State, r.Attempt, r.Attempts)
		}
	})
}

func TestRetireLetsRunningSlotsEndWithoutAGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Grace = time.Second
		b.handle(job.Job{Name: "report"}, func(ctx context.Context, _ job.Run) error {
			select {
			case <-time.After(time.Hour):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		c := consumer.New(b.cfg)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		first := b.publish("report")
		time.Sleep(time.Second)
		c.Retire()
		c.Retire()
		synctest.Wait()
		second := b.publish("report") // meets the request that is still open
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if r := b.record(first); r.State != job.Succeeded {
			t.Errorf("the slot that ran is %s: %s", r.State, r.Error)
		}
		if _, _, err := b.ledger.Read(t.Context(), second); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("the slot that came later has a record: %v", err)
		}
	})
}

// No other worker may work on the queue: the slot would wait there, in its job's lock, and the later
// slots of the job would be skipped.
func TestRetireLetsASlotInItsJobsLockBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		reached, open := make(chan struct{}), make(chan struct{})
		b.cfg.Locks = &countedLocks{Locks: b.cfg.Locks, first: func() { close(reached); <-open }}
		b.handle(job.Job{Name: "report", Overlap: job.OverlapSkip}, func(context.Context, job.Run) error { return nil })
		c := consumer.New(b.cfg)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		slot := b.publish("report")
		<-reached
		c.Retire()
		synctest.Wait()
		close(open)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if r := b.record(slot); r.State != job.Succeeded {
			t.Errorf("the slot is %s: %s", r.State, r.Error)
		}
	})
}

func TestRetireLeavesTheGraceToStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Grace = 5 * time.Second
		b.handle(job.Job{Name: "report"}, func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return context.Cause(ctx) })
		c := consumer.New(b.cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		slot := b.publish("report")
		time.Sleep(time.Second)
		c.Retire()
		time.Sleep(time.Minute)
		asked := time.Now()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(asked); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("it took %v, want the grace of 5s and little more", took)
		}
		if r := b.record(slot); !strings.Contains(r.Error, job.ErrStopping.Error()) {
			t.Errorf("%s: %s", r.State, r.Error)
		}
	})
}
