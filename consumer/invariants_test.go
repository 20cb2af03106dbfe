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
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

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

// A node whose lease has ended claims no slot and ends none, even if its context has not ended yet.
func TestANodeWithoutALeaseWritesNoRecord(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"a claim": 0, "an outcome without a run": 2 * horizon} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
				b.ledger.before = func(r job.Record, _ uint64) error {
					t.Errorf("it wrote that the slot is %s", r.State)
					return nil
				}
				b.node.untrusted = true
				stop := b.run()
				s := job.NewSlot("report", time.Now().Add(-age))
				b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At})
				time.Sleep(lease / 2)
				_ = stop()
				if said := b.queue.verdicts(); len(said) > 0 {
					t.Errorf("it answered %q", said)
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

func TestARefusedCompletionNamesTheLeaseIfThatHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log strings.Builder
		b.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b.handle(job.Job{Name: "report"}, func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return nil })
		stop := b.run()
		b.publish("report")
		time.Sleep(time.Second)
		b.node.lose(job.ErrLeaseLost)
		_ = stop()
		if text := log.String(); !strings.Contains(text, "completion refused") || !strings.Contains(text, "lease lost") || strings.Contains(text, "another") {
			t.Error(text)
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
	b.write(r, revision)
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
		b.queue.add(core.Message{Slot: slot, JobRevision: 1, Due: slot.At})
		b.settled(2)
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
		_ = stop()
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
		stored := b.queue.add(core.Message{Slot: slot, JobRevision: 1, Due: slot.At})
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
		claim := core.Decide(
			core.Delivery{Message: core.Message{Slot: slot, JobRevision: 1, Due: slot.At}, Queue: "default", Count: 1, Published: time.Now()},
			core.View{Now: time.Now(), Self: "B", Horizon: horizon, Handles: true, Entry: entryOf(b, "report")})
		claim.Record.Nonce = "B#1"
		b.write(claim.Record, 0)
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

func entryOf(b *bench, name string) *plans.Entry {
	e := b.registry[name]
	return &e
}

// Invariant 8. The claim was stored and its answer lost. The ledger says whose claim it is,
// and the slot runs at once, not when its message comes again.
func TestAnUnansweredClaimIsSettledBeforeItsMessageIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runs := 0
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { runs++; return nil })
		b.ledger.before = func(r job.Record, revision uint64) error {
			b.ledger.before = nil
			if _, err := b.ledger.Write(b.Context(), r, revision); err != nil {
				t.Error(err)
			}
			return job.ErrUnknown
		}
		stop := b.run()
		slot := b.publish("report")
		b.settled(1)
		_ = stop()
		if v := b.queue.verdicts(); runs != 1 || !slices.Equal(v, []string{"ack " + slot.ID()}) {
			t.Errorf("%d runs, verdicts %q; want one of each", runs, v)
		}
		if r := b.record(slot); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("record %s at attempt %d, want succeeded at the first", r.State, r.Attempt)
		}
	})
}
