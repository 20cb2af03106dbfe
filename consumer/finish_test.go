package consumer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// finishing runs one slot of a job with on_lease_lost: finish. Its node loses its lease while
// the handler runs.
func finishing(t *testing.T, handler job.Handler) (b *bench, slot job.Slot, stop func() error) {
	b = newBench(t)
	b.handle(job.Job{Name: "report", OnLeaseLost: job.LeaseLostFinish}, handler)
	stop = b.run()
	slot = b.publish("report")
	time.Sleep(time.Second)
	b.node.lose(job.ErrLeaseLost)
	if err := stop(); !errors.Is(err, job.ErrLeaseLost) {
		t.Errorf("Run returned %v, want %v", err, job.ErrLeaseLost)
	}
	return b, slot, stop
}

func (b *bench) finish(grace time.Duration) {
	over, end := context.WithTimeout(b.Context(), grace)
	defer end()
	b.cfg.Table.Finish(over)
}

func TestAHandlerThatIsToFinishOutlivesTheLeaseAndIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, slot, _ := finishing(t, func(ctx context.Context, _ job.Run) error {
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if r := b.record(slot); r.State != job.Running {
			t.Fatalf("%s after the lease was lost", r.State)
		}
		b.finish(2 * time.Minute)
		if r := b.record(slot); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("%s at attempt %d, want succeeded at 1", r.State, r.Attempt)
		}
		if v := b.queue.verdicts(); !slices.Equal(v, []string{"ack " + slot.ID()}) {
			t.Errorf("said %q", v)
		}
	})
}

func TestTheEndOfAHandlerThatFinishedIsRefusedOnceItsSlotWasTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, slot, _ := finishing(t, func(context.Context, job.Run) error { time.Sleep(time.Minute); return nil })
		b.takeOver(slot, "B")
		b.finish(2 * time.Minute)
		if r := b.record(slot); r.Node != "B" || r.State != job.Running {
			t.Errorf("the record is %s's and %s, want B's claim untouched", r.Node, r.State)
		}
		if v := b.queue.verdicts(); len(v) > 0 {
			t.Errorf("said %q, want silence", v)
		}
	})
}

func TestAHandlerThatIsToFinishEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, slot, _ := finishing(t, func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return context.Cause(ctx) })
		began := time.Now()
		b.finish(time.Minute)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it had %v of grace, want a minute", took)
		}
		if r := b.record(slot); r.State != job.Retrying {
			t.Errorf("%s, want retrying: it did not finish", r.State)
		}
	})
}

// A node writes that it has stopped only when none of its handlers runs. So it also waits for a
// handler that may outlive a lost lease.
func TestAWorkerThatStopsWaitsForAHandlerThatIsToFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Grace = 5 * time.Second
		b.handle(job.Job{Name: "report", OnLeaseLost: job.LeaseLostFinish}, func(ctx context.Context, _ job.Run) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return context.Cause(ctx)
		})
		stop := b.run()
		slot := b.publish("report")
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := b.cfg.Table.Len("A"); n > 0 {
			t.Errorf("%d slots are still owed", n)
		}
		if r := b.record(slot); r.State != job.Retrying {
			t.Errorf("%s, want retrying", r.State)
		}
	})
}

// After the grace and linger, neither Run nor Table.Finish waits for the handler any longer.
func TestAHandlerThatIgnoresTheEndIsGivenUpOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Grace = 20 * time.Second
		free := make(chan struct{})
		b.handle(job.Job{Name: "report", OnLeaseLost: job.LeaseLostFinish}, func(context.Context, job.Run) error { <-free; return nil })
		stop := b.run()
		b.publish("report")
		time.Sleep(time.Second)
		began := time.Now()
		_ = stop()
		b.finish(time.Minute)
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("stopping took %v, want the grace of 20s and 5s", took)
		}
		close(free)
	})
}
