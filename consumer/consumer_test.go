package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settled waits, in fake time, until the queue has got n verdicts.
func (b *bench) settled(n int) []string {
	b.Helper()
	for range 100_000 {
		if v := b.queue.verdicts(); len(v) >= n {
			return v
		}
		time.Sleep(10 * time.Millisecond) // fake time: this is a synctest bubble
	}
	b.Fatalf("after a quarter of an hour only these verdicts: %q", b.queue.verdicts())
	return nil
}

func TestAHandlerThatOverwritesItsPayloadDoesNotChangeTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			clear(run.Payload)
			return nil
		})
		stop := b.run()
		slot := job.Slot{Job: "report", Token: "order-4711"}
		b.queue.add(core.Message{Slot: slot, JobRevision: 1})
		b.settled(1)
		if r := b.record(slot); r.State != job.Succeeded || string(r.Payload) != `{"n":1}` {
			t.Errorf("%s with the payload %q", r.State, r.Payload)
		}
		_ = stop()
	})
}

func TestASlotIsClaimedRunRecordedAndThenAcked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			fmt.Fprintf(run.Output, "%s attempt %d fence %d payload %s", run.Slot, run.Attempt, run.Fence, run.Payload)
			return nil
		})
		stop := b.run()
		slot := b.publish("report")
		if v := b.settled(1); v[0] != "ack "+slot.ID() {
			t.Errorf("verdict %q, want an ack", v)
		}
		r := b.record(slot)
		if r.State != job.Succeeded || r.Attempt != 1 || r.Attempts[0].Fence != 1 || r.Node != "A" {
			t.Errorf("record %+v, want succeeded at fence 1 by A", r)
		}
		if want := slot.ID() + ` attempt 1 fence 1 payload {"n":1}`; r.Output != want {
			t.Errorf("output %q, want %q", r.Output, want)
		}
		if said := b.queue.said(); len(said) != 1 {
			t.Errorf("said %q, want nothing but the ack: a short slot is worth no mark", said)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if k := b.kinds(); !slices.Equal(k, []job.EventKind{job.EventSucceeded}) {
			t.Errorf("events %v", k)
		}
	})
}

func TestFailedAttemptsAreRetriedWithBackoffUntilTheyAreSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var starts []time.Time
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 4, Backoff: 10 * time.Second, MaxBackoff: 30 * time.Second}},
			func(context.Context, job.Run) error {
				starts = append(starts, time.Now())
				return fmt.Errorf("failure %d", len(starts))
			})
		stop := b.run()
		slot := b.publish("report")
		b.settled(4)
		_ = stop()
		r := b.record(slot)
		if r.State != job.Failed || len(r.Attempts) != 4 || r.Error != "failure 4 (all 4 attempts are spent)" {
			t.Fatalf("record %+v", r)
		}
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			// A fifth of jitter, and up to a second until the worker asks again.
			if got := starts[i+1].Sub(starts[i]); got < want*8/10 || got > min(want*12/10, 30*time.Second)+time.Second {
				t.Errorf("attempt %d came %v after the one before, want about %v", i+2, got, want)
			}
			if r.Attempts[i].Error != fmt.Sprintf("failure %d", i+1) {
				t.Errorf("attempt %d is remembered with %q", i+1, r.Attempts[i].Error)
			}
		}
	})
}

func TestAPanicIsAFailedAttemptWithItsStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error { panic("boom") })
		stop := b.run()
		slot := b.publish("report")
		b.settled(1)
		_ = stop()
		r := b.record(slot)
		if r.State != job.Failed || !strings.Contains(r.Error, "panic: boom") || !strings.Contains(r.Error, "consumer_test.go") {
			t.Errorf("%s %q, want the panic and its stack", r.State, r.Error)
		}
	})
}

func TestTimeoutEndsAnAttemptByItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Timeout: time.Minute, Retry: job.Retry{Attempts: 1}},
			func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return ctx.Err() })
		stop := b.run()
		slot := b.publish("report")
		b.settled(1)
		_ = stop()
		if r := b.record(slot); r.State != job.Failed || !strings.HasPrefix(r.Error, "timeout of 1m0s") {
			t.Errorf("%s %q, want failed by the timeout", r.State, r.Error)
		}
	})
}

func TestALongRunIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
			runs++
			time.Sleep(10 * lease)
			return nil
		})
		stop := b.run()
		b.publish("report")
		b.settled(1)
		_ = stop()
		if marks := len(b.queue.said()) - 1; runs != 1 || marks < 20 {
			t.Errorf("%d runs and %d in-progress marks in ten leases, want one run, and three marks a lease", runs, marks)
		}
	})
}

// If the worker died while a slot of one attempt waited with its claim, the slot would be failed
// without a start.
func TestASlotOfOneAttemptIsNotClaimedAhead(t *testing.T) {
	t.Parallel()
	neverAhead(t, job.Job{Name: "report", Retry: job.Retry{Attempts: 1}})
}

// A slot with a deadline would start whenever the limiter admits it.
func TestASlotWithADeadlineIsNotClaimedAhead(t *testing.T) {
	t.Parallel()
	neverAhead(t, job.Job{Name: "report", Deadline: time.Hour})
}

// neverAhead runs many slots of a job that ends at once, and wants each to be claimed only when its
// handler can start.
func neverAhead(t *testing.T, j job.Job) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Concurrency = 1
		b.slowLedger()
		claimed, returned := 0, 0
		b.ledger.after = func(r job.Record) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if r.State == job.Running {
				claimed++
			}
			if claimed > returned+1 {
				t.Errorf("%d slots are claimed after %d handlers have returned, and one can run", claimed, returned)
			}
		}
		b.handle(j, func(context.Context, job.Run) error {
			time.Sleep(time.Microsecond) // so short that others would be claimed ahead
			b.mu.Lock()
			defer b.mu.Unlock()
			returned++
			return nil
		})
		stop := b.run()
		b.backlog(200)
		b.settled(200)
		_ = stop()
	})
}

// The server checks the subject that a login publishes on. A message there about another
// job's slot is dropped before anything is read or written.
func TestAMessageOnAnotherJobsSubjectIsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ran := 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { ran++; return nil })
		stop := b.run()
		slot := job.NewSlot("report", time.Now().Truncate(time.Second))
		for _, m := range []core.Message{{Slot: slot}, {Slot: slot, Missed: 1}, {Slot: slot, Refused: "no"}} {
			b.queue.addOn("cronce.slot.default.mail", m)
		}
		for i, v := range b.settled(3) {
			if v != "term "+slot.ID() {
				t.Errorf("verdict %d is %q, want it dropped", i, v)
			}
		}
		if r, _, err := b.ledger.Read(t.Context(), slot); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("recorded %+v, %v", r, err)
		}
		if err := stop(); err != nil || ran > 0 {
			t.Errorf("ran %d times, %v", ran, err)
		}
	})
}
