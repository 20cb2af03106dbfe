package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// A reload may drop a job between the claim and the start of its slot. The slot is
// released at once, for a worker that has a handler, and its attempt does not count.
func TestASlotWhoseJobIsDroppedBetweenItsClaimAndItsStartIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error { return nil })
		dropped := false
		b.cfg.Handler = func(name string) job.Handler {
			if b.mu.Lock(); dropped {
				b.mu.Unlock()
				return nil
			}
			defer b.mu.Unlock()
			return b.handlers[name]
		}
		b.ledger.after = func(r job.Record) {
			b.mu.Lock()
			defer b.mu.Unlock()
			dropped = dropped || r.State == job.Running
		}
		stop := b.run()
		slot := b.publish("report")
		time.Sleep(time.Second)
		if r := b.record(slot); r.State != job.Retrying || r.Attempt != 0 {
			t.Errorf("%s after %d attempts, want it released and not counted", r.State, r.Attempt)
		}
		b.mu.Lock()
		dropped = false
		b.ledger.after = nil
		b.mu.Unlock()
		time.Sleep(2 * time.Minute)
		_ = stop()
		if r := b.record(slot); r.State != job.Succeeded || r.Attempt != 1 {
			t.Errorf("%s at attempt %d when the job was back, want succeeded at 1", r.State, r.Attempt)
		}
	})
}

// soon is a horizon for tests that go past it.
const soon = 20 * time.Minute

// forgotten is a slot that the live node A has claimed, and whose message comes to B. holds
// returns what A answers.
func forgotten(t *testing.T, attempts int, holds func() (exchange.HoldsAnswer, error)) (b *bench, slot job.Slot, stop func() error) {
	b = newBench(t)
	b.cfg.Horizon = soon
	b.node.name = "B"
	b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: attempts}}, func(context.Context, job.Run) error { return nil })
	slot = job.NewSlot("report", time.Now())
	b.write(job.Record{
		Slot: slot, Queue: "default", State: job.Running, Node: "A", Nonce: "A#1", Attempt: 1, MaxAttempts: attempts, Due: slot.At,
		Attempts: []job.Attempt{{Number: 1, Node: "A", Started: time.Now()}},
	}, 0)
	b.cfg.Holds = func(_ context.Context, node string, s job.Slot, claim uint64) (exchange.HoldsAnswer, error) {
		if node != "A" || s != slot || claim == 0 {
			t.Errorf("asked %s about %s at %d", node, s, claim)
		}
		return holds()
	}
	b.queue.addDelivered("cronce.slot.default.report", core.Message{Slot: slot, JobRevision: 1, Due: slot.At}, 1)
	return b, slot, b.run()
}

func TestALiveOwnerIsAskedWhetherItHoldsItsClaim(t *testing.T) {
	t.Parallel()
	answer := func(a exchange.HoldsAnswer, err error) func() (exchange.HoldsAnswer, error) {
		return func() (exchange.HoldsAnswer, error) { return a, err }
	}
	for name, c := range map[string]struct {
		attempts int
		holds    func() (exchange.HoldsAnswer, error)
		want     job.State // after a minute
		past     job.State // past the horizon
	}{
		"it does":                               {3, answer(exchange.HoldsAnswer{Holds: true}, nil), job.Running, job.Running},
		"it does not":                           {3, answer(exchange.HoldsAnswer{}, nil), job.Succeeded, job.Succeeded},
		"it does not, and one attempt is spent": {1, answer(exchange.HoldsAnswer{}, nil), job.Failed, job.Failed},
		"it does not answer":                    {3, answer(exchange.HoldsAnswer{}, job.ErrUnknown), job.Running, job.Running}, // its handler may live
		"its handler ignores its end":           {3, answer(exchange.HoldsAnswer{Holds: true, Ended: true}, nil), job.Running, job.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, slot, stop := forgotten(t, c.attempts, c.holds)
				time.Sleep(time.Minute)
				if r := b.record(slot); r.State != c.want {
					t.Errorf("%s after a minute, want %s", r.State, c.want)
				}
				time.Sleep(soon)
				if r := b.record(slot); r.State != c.past {
					t.Errorf("%s past the horizon, want %s", r.State, c.past)
				}
				_ = stop()
			})
		})
	}
}

// The owner claims the slot again between its answer and the takeover: the revision decides.
func TestATakeoverFromAnOwnerThatHasClaimedAgainIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		var slot job.Slot
		asked, known := 0, make(chan struct{})
		b, slot, stop := forgotten(t, 3, func() (exchange.HoldsAnswer, error) {
			<-known
			if asked++; asked > 1 {
				return exchange.HoldsAnswer{Holds: true}, nil
			}
			r, revision, err := b.ledger.Read(b.Context(), slot)
			if err != nil {
				t.Error(err)
			}
			r.Nonce = "A#2"
			if _, err := b.ledger.Write(b.Context(), r, revision); err != nil {
				t.Error(err)
			}
			return exchange.HoldsAnswer{}, nil
		})
		close(known)
		time.Sleep(time.Minute)
		_ = stop()
		if r := b.record(slot); r.Node != "A" || r.Attempt != 1 || asked < 2 {
			t.Errorf("%s's at attempt %d, asked %d times; want A's claim untouched", r.Node, r.Attempt, asked)
		}
	})
}

// Invariant 10: whatever any single process did, forgot or answers.
func TestProgressNoSlotStaysWithoutAnOutcomePastItsHorizon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(*bench)
		add  func(b *bench, s job.Slot, err error) // what stands in the ledger before
	}{
		"this node has claimed it and forgot": {add: func(b *bench, s job.Slot, _ error) { b.claimed(s, "A", 3) }},
		"it panics whatever is done with it": {harm: func(b *bench) {
			b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { panic("boom") })
		}},
		"no handler, and the job is gone": {harm: func(b *bench) { delete(b.handlers, "report"); delete(b.registry, "report") }},
		"it was released before it started, and is not wanted any more": {
			harm: func(b *bench) { delete(b.handlers, "report") },
			add:  func(b *bench, s job.Slot, _ error) { b.released(s) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.cfg.Horizon = soon
				b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
				slot := job.NewSlot("report", time.Now())
				if c.harm != nil {
					c.harm(b)
				}
				if c.add != nil {
					c.add(b, slot, nil)
				}
				b.queue.addDelivered("cronce.slot.default.report", core.Message{Slot: slot, JobRevision: 1, Due: slot.At}, 1)
				stop := b.run()
				time.Sleep(soon + 5*time.Minute)
				_ = stop()
				if r := b.record(slot); !r.State.Final() {
					t.Errorf("%s past the horizon", r.State)
				}
			})
		})
	}
}

// claimed writes the claim of a node that never completes it.
func (b *bench) claimed(s job.Slot, node string, attempts int) {
	b.Helper()
	b.write(job.Record{
		Slot: s, Queue: "default", State: job.Running, Node: node, Nonce: node + "#0", Attempt: 1, MaxAttempts: attempts, Due: s.At,
		Attempts: []job.Attempt{{Number: 1, Node: node, Started: time.Now()}},
	}, 0)
}

func (b *bench) released(s job.Slot) {
	b.Helper()
	b.write(job.Record{
		Slot: s, Queue: "default", State: job.Retrying, Node: "Z", Nonce: "Z#0", MaxAttempts: 3, Due: s.At, RetryAt: time.Now(), Error: "given back before it was started",
	}, 0)
}

// A claim may be released before its handler starts, as when the worker stops. The deadline
// counts from the first claim.
func TestAReleasedClaimKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]job.State{time.Minute: job.Succeeded, 2 * time.Hour: job.Expired} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.cfg.Grace = -1
				b.handle(job.Job{Name: "report", Deadline: 10 * time.Minute}, func(context.Context, job.Run) error { return nil })
				slot := b.stopWhileClaiming("report")
				if r := b.record(slot); r.State != job.Retrying || r.Attempt != 0 {
					t.Fatalf("%s after %d attempts, want it released", r.State, r.Attempt)
				}
				time.Sleep(late)
				b.node = newNode("B")
				b.cfg.Node, b.cfg.Table = b.node, consumer.NewTable()
				stop := b.run()
				time.Sleep(time.Minute)
				_ = stop()
				if r := b.record(slot); r.State != want {
					t.Errorf("%s %q, %v after it was due with a deadline of 10m; want %s", r.State, r.Error, late, want)
				}
			})
		})
	}
}

// Of two slots that waited while no worker was ready, the newer one may get the lock
// first. The older one is not skipped for it: it came before.
func TestASlotIsNotSkippedForANewerOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Overlap: job.OverlapSkip}, func(context.Context, job.Run) error { time.Sleep(10 * time.Second); return nil })
		older, newer := job.NewSlot("report", time.Now().Add(-time.Minute)), job.NewSlot("report", time.Now())
		stop := b.run()
		b.queue.add(core.Message{Slot: newer, JobRevision: 1, Due: newer.At})
		time.Sleep(time.Second)
		b.queue.addDelivered("cronce.slot.default.report", core.Message{Slot: older, JobRevision: 1, Due: older.At}, 1)
		time.Sleep(time.Minute)
		_ = stop()
		for _, s := range []job.Slot{older, newer} {
			if r := b.record(s); r.State != job.Succeeded {
				t.Errorf("%s is %s: %s", s, r.State, r.Error)
			}
		}
	})
}

// Slots that a worker gives back because it is not ready come before newer slots.
func TestAWorkerThatIsNotReadyGivesSlotsBackInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		ready := false
		open, shut := make(chan struct{}), make(chan struct{})
		close(open)
		b.cfg.Ready = func() <-chan struct{} {
			b.mu.Lock()
			defer b.mu.Unlock()
			if ready {
				return open
			}
			return shut
		}
		ready = true
		stop := b.run()
		time.Sleep(time.Second)
		b.mu.Lock()
		ready = false
		b.mu.Unlock()
		slot := b.publish("report")
		time.Sleep(time.Second)
		for _, v := range b.queue.verdicts() {
			if v != "nak "+slot.ID() {
				t.Errorf("said %q, want it given back without a delay", v)
			}
		}
		b.mu.Lock()
		ready = true
		close(shut)
		b.mu.Unlock()
		b.settled(1)
		_ = stop()
	})
}

// Handlers that are to finish keep their permits when the lease ends.
func TestConcurrencyIsOfTheProcessOverLostLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		running, most := 0, 0
		b.handle(job.Job{Name: "report", OnLeaseLost: job.LeaseLostFinish}, func(context.Context, job.Run) error {
			b.mu.Lock()
			running++
			most = max(most, running)
			b.mu.Unlock()
			time.Sleep(time.Hour)
			b.mu.Lock()
			running--
			b.mu.Unlock()
			return nil
		})
		b.backlog(40)
		for _, name := range strings.Split("A B C D E", " ") {
			b.node = newNode(name)
			b.cfg.Node = b.node
			stop := b.run()
			time.Sleep(time.Minute)
			b.node.lose(job.ErrLeaseLost)
			if err := stop(); !errors.Is(err, job.ErrLeaseLost) {
				t.Errorf("Run returned %v", err)
			}
		}
		b.finish(2 * time.Hour)
		b.mu.Lock()
		defer b.mu.Unlock()
		if most != b.cfg.Concurrency {
			t.Errorf("%d handlers ran at once over five leases, want %d", most, b.cfg.Concurrency)
		}
	})
}
