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

	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settled waits, in fake time, until the queue has said n verdicts.
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
		if said := b.queue.said(); said[0] != "wpi "+slot.ID() {
			t.Errorf("first said %q, want the message marked as in progress", said[0])
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if k := b.kinds(); !slices.Equal(k, []job.EventKind{job.EventSucceeded}) {
			t.Errorf("events %v", k)
		}
	})
}

// Invariant 3.
func TestNoHandlerStartsWithoutAWonWrite(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(b *bench){
		"the claim conflicts with another's": func(b *bench) {
			b.ledger.before = func(r job.Record, _ uint64) error {
				b.ledger.before = nil
				r.Node, r.Nonce = "B", "B#1"
				_, err := b.ledger.Write(b.Context(), r, 0)
				return err
			}
		},
		"the ledger refuses": func(b *bench) {
			b.ledger.before = func(job.Record, uint64) error { return errors.New("bucket is full") }
		},
		"the claim is never answered": func(b *bench) {
			b.ledger.before = func(job.Record, uint64) error {
				<-b.node.ctx.Done()
				return job.ErrUnknown
			}
			time.AfterFunc(lease, func() { b.node.lose(job.ErrLeaseLost) })
		},
		"the lease is over when the claim is answered": func(b *bench) {
			b.ledger.after = func(job.Record) {
				b.node.mu.Lock()
				defer b.node.mu.Unlock()
				b.node.untrusted = true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
					t.Error("the handler was started")
					return nil
				})
				fault(b)
				stop := b.run()
				b.publish("report")
				time.Sleep(lease / 2)
				_ = stop()
				for _, v := range b.queue.verdicts() {
					if strings.HasPrefix(v, "ack") {
						t.Errorf("acked: %q", v)
					}
				}
			})
		})
	}
}

// Invariant 4.
func TestAHandlersContextEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cause := make(chan error, 1)
		b.handle(job.Job{Name: "report"}, func(ctx context.Context, _ job.Run) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil // it says that it was done all the same
		})
		stop := b.run()
		slot := b.publish("report")
		time.Sleep(time.Second)
		b.node.lose(job.ErrLeaseLost)
		if got := <-cause; !errors.Is(got, job.ErrLeaseLost) {
			t.Errorf("cause %v, want %v", got, job.ErrLeaseLost)
		}
		if err := stop(); !errors.Is(err, job.ErrLeaseLost) {
			t.Errorf("Run returned %v, want %v", err, job.ErrLeaseLost)
		}
		if v := b.queue.verdicts(); len(v) != 0 {
			t.Errorf("a worker without a lease said %q", v)
		}
		if r := b.record(slot); r.State != job.Running {
			t.Errorf("a worker without a lease recorded %s", r.State)
		}
		if k := b.kinds(); !slices.Equal(k, []job.EventKind{job.EventRefused}) {
			t.Errorf("events %v, want the refused completion", k)
		}
	})
}

// Invariants 5 and 6.
func TestAWorkerThatLostItsClaimCannotCompleteAndSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := make(chan struct{})
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { <-release; return nil })
		stop := b.run()
		slot := b.publish("report")
		time.Sleep(time.Second)
		b.takeOver(slot, "B")
		close(release)
		time.Sleep(time.Second)
		if v := b.queue.verdicts(); len(v) != 0 {
			t.Errorf("said %q, want silence", v)
		}
		if r := b.record(slot); r.Node != "B" || r.State != job.Running {
			t.Errorf("record of %s in state %s, want B's claim untouched", r.Node, r.State)
		}
		_ = stop()
	})
}

// takeOver rewrites the slot's record as another node's claim.
func (b *bench) takeOver(s job.Slot, node string) {
	b.Helper()
	r, revision, err := b.ledger.Read(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	r.Node, r.Attempt, r.Nonce = node, r.Attempt+1, node+"#1"
	r.Attempts = append(slices.Clone(r.Attempts), job.Attempt{Number: r.Attempt, Node: node, Started: time.Now()})
	if _, err := b.ledger.Write(b.Context(), r, revision); err != nil {
		b.Fatal(err)
	}
}

// Invariant 6.
func TestAckOnlyAfterTheRecordIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
			full := time.Now().Add(time.Minute)
			b.ledger.before = func(job.Record, uint64) error {
				if time.Now().Before(full) {
					return errors.New("maximum bytes exceeded")
				}
				return nil
			}
			return nil
		})
		stop := b.run()
		slot := b.publish("report")
		time.Sleep(30 * time.Second)
		if v := b.queue.verdicts(); len(v) != 0 {
			t.Errorf("said %q while the outcome could not be written", v)
		}
		b.settled(1)
		if r := b.record(slot); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("record %s attempt %d, want succeeded at the first", r.State, r.Attempt)
		}
		_ = stop()
	})
}

func TestAFinishedSlotThatComesAgainIsAckedAndNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { runs++; return nil })
		stop := b.run()
		slot := b.publish("report")
		b.settled(1)
		b.queue.add(job.Message{Slot: slot, JobRevision: 1, Due: slot.At})
		b.settled(2)
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
		_ = stop()
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

func TestHandlersSteerWithErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		state job.State
		error string
	}{
		"permanent": {job.Permanent(errors.New("no such customer")), job.Failed, "no such customer"},
		"later":     {job.RetryAfter(time.Hour, errors.New("busy")), job.Retrying, "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return c.err })
				stop := b.run()
				slot := b.publish("report")
				b.settled(1)
				_ = stop()
				r := b.record(slot)
				if r.State != c.state || r.Error != c.error {
					t.Errorf("%s %q, want %s %q", r.State, r.Error, c.state, c.error)
				}
				if r.State == job.Retrying && r.RetryAt.Sub(r.Attempts[0].Finished) != time.Hour {
					t.Errorf("again after %v, want what the handler asked for", r.RetryAt.Sub(r.Attempts[0].Finished))
				}
			})
		})
	}
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

func TestOwnSlotRedeliveredIsMetWithSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
			runs++
			time.Sleep(5 * time.Second)
			return nil
		})
		stop := b.run()
		slot := job.NewSlot("report", time.Now())
		stored := b.queue.add(job.Message{Slot: slot, JobRevision: 1, Due: slot.At})
		time.Sleep(time.Second)
		b.queue.mu.Lock()
		b.queue.offer(stored) // as after a change of the consumer's leader
		b.queue.mu.Unlock()
		b.settled(1)
		time.Sleep(2 * lease)
		_ = stop()
		if v := b.queue.verdicts(); runs != 1 || !slices.Equal(v, []string{"ack " + slot.ID()}) {
			t.Errorf("%d runs, verdicts %q; want one of each", runs, v)
		}
	})
}

func TestASlotOfADeadNodeIsTakenOverAndOneOfALivingNodeIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := 0
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			runs++
			if run.Attempt != 2 || run.Fence != 2 {
				t.Errorf("attempt %d fence %d, want 2 and 2", run.Attempt, run.Fence)
			}
			return nil
		})
		slot := b.publish("report")
		claim := job.Decide(
			job.Delivery{Message: job.Message{Slot: slot, JobRevision: 1, Due: slot.At}, Queue: "default", Count: 1, Published: time.Now()},
			job.View{Now: time.Now(), Self: "B", Horizon: horizon, Handles: true, Entry: entryOf(b, "report")})
		claim.Record.Nonce = "B#1"
		if _, err := b.ledger.Write(t.Context(), claim.Record, 0); err != nil {
			t.Fatal(err)
		}
		stop := b.run()
		time.Sleep(10 * time.Second)
		if runs != 0 {
			t.Fatal("a living node's slot was run")
		}
		b.node.kill("B")
		for b.record(slot).State != job.Succeeded {
			time.Sleep(100 * time.Millisecond)
		}
		_ = stop()
		if k := b.kinds(); !slices.Equal(k, []job.EventKind{job.EventTakeover, job.EventSucceeded}) {
			t.Errorf("events %v", k)
		}
	})
}

func entryOf(b *bench, name string) *job.Entry {
	e := b.registry[name]
	return &e
}

func TestItAsksForExactlyAsManySlotsAsItHasFreePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		running, most := 0, 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error {
			b.mu.Lock()
			running++
			most = max(most, running)
			b.mu.Unlock()
			time.Sleep(700 * time.Millisecond)
			b.mu.Lock()
			running--
			b.mu.Unlock()
			return nil
		})
		for i := range 40 {
			slot := job.NewSlot("report", time.Now().Add(-time.Duration(i)*time.Second))
			b.queue.add(job.Message{Slot: slot, JobRevision: 1, Due: slot.At})
		}
		stop := b.run()
		b.settled(40)
		_ = stop()
		if most != 4 || b.queue.mostOut != 4 {
			t.Errorf("at most %d running and %d asked for or in hand, want 4 and 4", most, b.queue.mostOut)
		}
	})
}

func TestStoppingGivesBackWhatNeverStartedAndLetsTheRestFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { time.Sleep(10 * time.Second); return nil })
		stop := b.run()
		first := b.publish("report")
		time.Sleep(1500 * time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		synctest.Wait()
		second := b.publish("report") // meets the request that still stands
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if v := b.queue.verdicts(); !slices.Contains(v, "nak "+second.ID()) || !slices.Contains(v, "ack "+first.ID()) {
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

func TestASourceThatIsGoneIsOpenedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		b.queue.failing = errors.New("consumer not found")
		stop := b.run()
		b.publish("report")
		time.Sleep(10 * time.Second)
		b.queue.mu.Lock()
		b.queue.failing = nil
		b.queue.mu.Unlock()
		b.settled(1)
		_ = stop()
	})
}

func TestAMessageThatIsNoSlotIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		stop := b.run()
		b.queue.add(job.Message{Slot: job.Slot{Job: "a b"}})
		if v := b.settled(1); !strings.HasPrefix(v[0], "term") {
			t.Errorf("verdict %q", v)
		}
		_ = stop()
	})
}
