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

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// The broker is away from the handler's return until its node's lease is long over. No other
// worker has taken the slot over: its success is recorded.
func TestASuccessIsRecordedAlthoughTheLeaseEndsBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	for taken, want := range map[bool]job.State{false: job.Succeeded, true: job.Running} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			back := make(chan struct{})
			b.ledger.before = func(r job.Record, _ uint64) error {
				if r.State == job.Succeeded {
					<-back
				}
				return nil
			}
			b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error { return nil })
			stop := b.run()
			slot := b.publish("report")
			time.Sleep(time.Second)
			b.node.lose(job.ErrLeaseLost)
			if err := stop(); !errors.Is(err, job.ErrLeaseLost) {
				t.Errorf("Run returned %v", err)
			}
			if taken {
				b.takeOver(slot, "B")
			}
			time.Sleep(2 * lease)
			close(back)
			time.Sleep(time.Second)
			r := b.record(slot)
			if r.State != want || !taken && r.Node != "A" {
				t.Errorf("taken over: %v: %s by %s, want %s", taken, r.State, r.Node, want)
			}
			acked := slices.Contains(b.queue.verdicts(), "ack "+slot.ID())
			if acked == taken {
				t.Errorf("taken over: %v, acked: %v", taken, acked)
			}
			if n := b.cfg.Table.Size(); n != 0 {
				t.Errorf("%d slots are still owed", n)
			}
		})
	}
}

// Invariant 4, by the clock: a handler that asks its context gets the right answer even if no
// other goroutine of the process has run.
func TestAHandlersContextEndsByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var cause, derived error
		b.handle(job.Job{Name: "report"}, func(ctx context.Context, _ job.Run) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := ctx.Err(); err != nil {
				t.Errorf("ended at its start: %v", err)
			}
			b.node.mu.Lock()
			b.node.untrusted = true
			b.node.mu.Unlock()
			if err := ctx.Err(); !errors.Is(err, context.Canceled) {
				t.Errorf("Err is %v after the lease", err)
			}
			cause, derived = context.Cause(ctx), context.Cause(child)
			return nil
		})
		stop := b.run()
		b.publish("report")
		time.Sleep(time.Second)
		b.node.lose(job.ErrLeaseLost)
		_ = stop()
		if !errors.Is(cause, job.ErrLeaseLost) || !errors.Is(derived, job.ErrLeaseLost) {
			t.Errorf("causes %v and %v, want %v", cause, derived, job.ErrLeaseLost)
		}
	})
}

// A purge of the ledger, or a restore, moves the revision of a claim, but does not end the
// claim. Only a later claim of another worker, or an outcome, does.
func TestAClaimThatTheLedgerLostIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(b *bench, s job.Slot)
		want job.State
		node string
	}{
		"the record is gone": {func(b *bench, s job.Slot) { b.ledger.Forget(s.Key()) }, job.Succeeded, "A"},
		"this very claim is at another revision": {func(b *bench, s job.Slot) {
			r := b.record(s)
			b.ledger.Forget(s.Key())
			b.restore(r)
		}, job.Succeeded, "A"},
		"an older record is there": {func(b *bench, s job.Slot) {
			r := b.record(s)
			b.ledger.Forget(s.Key())
			r = core.Release(r, time.Now())
			b.restore(r)
		}, job.Succeeded, "A"},
		"another's claim": {func(b *bench, s job.Slot) { b.takeOver(s, "B") }, job.Running, "B"},
		"another's claim, made anew": {func(b *bench, s job.Slot) {
			r := b.record(s)
			b.ledger.Forget(s.Key())
			r.Node = "B"
			b.restore(r)
		}, job.Running, "B"},
		"an outcome": {func(b *bench, s job.Slot) {
			r := b.record(s)
			b.ledger.Forget(s.Key())
			r.State, r.Attempt, r.Node = job.Cancelled, 0, "alice"
			b.restore(r)
		}, job.Cancelled, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { time.Sleep(10 * time.Second); return nil })
				stop := b.run()
				slot := b.publish("report")
				time.Sleep(time.Second)
				c.harm(b, slot)
				time.Sleep(12 * time.Second)
				_ = stop()
				if r := b.record(slot); r.State != c.want || r.Node != c.node {
					t.Errorf("%s by %s, want %s by %s", r.State, r.Node, c.want, c.node)
				}
				ours := c.node == "A"
				if acked := slices.Contains(b.queue.verdicts(), "ack "+slot.ID()); acked != ours {
					t.Errorf("acked: %v, want %v", acked, ours)
				}
			})
		})
	}
}

// restore stores a record where there is none.
func (b *bench) restore(r job.Record) {
	b.Helper()
	r.Nonce += "r"
	b.write(r, 0)
}

// The slots of a burst are claimed ahead of short handlers. No claim is released.
func TestABurstOfRunsReleasesNoClaim(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 49 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.slowLedger()
				b.cfg.Concurrency = 16
				released := 0
				b.ledger.after = func(r job.Record) {
					b.mu.Lock()
					defer b.mu.Unlock()
					if r.State == job.Retrying {
						released++
					}
				}
				b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { time.Sleep(takes); return nil })
				b.backlog(2000)
				stop := b.run()
				for acks(b.queue.verdicts()) < 2000 {
					time.Sleep(100 * time.Millisecond)
				}
				_ = stop()
				if released > 0 {
					t.Errorf("%d claims were released", released)
				}
			})
		})
	}
}

func TestAnOutcomeThatCannotBeRecordedIsLoggedOnceAndOnceMoreWhenItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log strings.Builder
		b.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		failures := 0
		b.ledger.before = func(r job.Record, _ uint64) error {
			if r.State == job.Succeeded && failures < 20 {
				failures++
				return errors.New("bucket full")
			}
			return nil
		}
		stop := b.run()
		s := b.publish("report")
		time.Sleep(time.Minute)
		if err := stop(); err != nil { // after that, nothing writes to the log
			t.Error(err)
		}
		first, last := strings.Count(log.String(), "outcome cannot be recorded; trying again"), strings.Count(log.String(), "failures=20")
		if r := b.record(s); r.State != job.Succeeded || first != 1 || last != 1 {
			t.Errorf("%s; the log:\n%s", r.State, &log)
		}
	})
}
