package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/consumer"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

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
			b.queue.returned()
			return nil
		})
		for i := range 40 {
			slot := job.NewSlot("report", time.Now().Add(-time.Duration(i)*time.Second))
			b.queue.add(core.Message{Slot: slot, JobRevision: 1, Due: slot.At})
		}
		stop := b.run()
		b.settled(40)
		_ = stop()
		if most != 4 || b.queue.mostOut != 4 {
			t.Errorf("at most %d running and %d asked for or in hand, want 4 and 4", most, b.queue.mostOut)
		}
	})
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

// The broker reports that a queue is gone only after the request was made.
func TestASourceThatFailsWhileARequestStandsIsOpenedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report"}, func(context.Context, job.Run) error { return nil })
		opened := 0
		b.cfg.Sources[0] = func(context.Context) (consumer.Source, error) {
			if opened++; opened < 3 {
				return &goneSource{b.queue.source()}, nil
			}
			return b.queue.source(), nil
		}
		stop := b.run()
		b.publish("report")
		b.settled(1)
		_ = stop()
	})
}

type goneSource struct{ *source }

func (s *goneSource) Ask(lane, _ int, _ time.Duration) error {
	s.serving.Go(func() { s.ended(lane, errors.New("consumer deleted")) })
	return nil
}

// A node that takes no slots is not ready.
func TestAQueueThatTheServerRefusesIsReportedUntilItIsOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		open, refused := b.cfg.Sources[0], &jetstream.APIError{Code: 400, ErrorCode: 10026, Description: "maximum consumers limit reached"}
		opens := false
		b.cfg.Sources[0] = func(ctx context.Context) (consumer.Source, error) {
			if !opens {
				return nil, fmt.Errorf("open queue default: %w", refused)
			}
			return open(ctx)
		}
		stop := b.run()
		time.Sleep(time.Second)
		if err := b.cfg.Table.Denied("default"); !errors.Is(err, refused) {
			t.Errorf("while the server refuses it: %v", err)
		}
		opens = true
		time.Sleep(time.Minute)
		if err := b.cfg.Table.Denied("default"); err != nil {
			t.Errorf("when it is open: %v", err)
		}
		_ = stop()
	})
}

func TestAQueueOfOtherSettingsEndsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Sources[0] = func(context.Context) (consumer.Source, error) { return nil, job.ErrMismatch }
		if err := consumer.New(b.cfg).Run(t.Context()); !errors.Is(err, job.ErrMismatch) {
			t.Errorf("Run returned %v, want %v", err, job.ErrMismatch)
		}
	})
}

// A newer node may read what this one cannot, so the message is not dropped.
func TestAMessageThatCannotBeReadIsLeftForANewerNodeUpToTheHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Horizon = time.Hour
		var log strings.Builder
		b.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		stop := b.run()
		b.queue.add(core.Message{Slot: job.Slot{Job: "a b"}})
		if v := b.settled(1); !strings.HasPrefix(v[0], "later") {
			t.Errorf("at first %q, want it given back", v)
		}
		time.Sleep(time.Hour)
		for v := b.queue.verdicts(); !strings.HasPrefix(v[len(v)-1], "term"); v = b.queue.verdicts() {
			time.Sleep(time.Minute)
			if time.Since(startOfBubble) > 2*time.Hour {
				t.Fatalf("past the horizon still %q", v[len(v)-1])
			}
		}
		_ = stop()
		if n := strings.Count(log.String(), "message cannot be read"); n != 2 || len(b.queue.verdicts()) < 10 {
			t.Errorf("it was logged %d times in %d deliveries, want 2", n, len(b.queue.verdicts()))
		}
	})
}

// startOfBubble is when every synctest bubble begins.
var startOfBubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestAHandlerThatEndsItsGoroutineIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error {
			runtime.Goexit()
			return nil
		})
		stop := b.run()
		slot := b.publish("report")
		b.settled(1)
		_ = stop()
		if r := b.record(slot); r.State != job.Failed || !strings.Contains(r.Error, "Goexit") {
			t.Errorf("%s %q", r.State, r.Error)
		}
	})
}

// The task that waits for its permit gets it, on another goroutine.
func TestAHandlerThatEndsItsGoroutineGivesItsPlaceOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Concurrency = 1
		b.ledger.before = func(job.Record, uint64) error { time.Sleep(20 * time.Millisecond); return nil } // so that some are claimed ahead
		b.handle(job.Job{Name: "report"}, func(_ context.Context, run job.Run) error {
			time.Sleep(time.Millisecond)
			if run.Attempt == 1 {
				runtime.Goexit()
			}
			return nil
		})
		stop := b.run()
		var slots []job.Slot
		for i := range 60 {
			s := job.NewSlot("report", time.Now().Add(-time.Duration(i)*time.Second))
			b.queue.add(core.Message{Slot: s, JobRevision: 1, Due: s.At})
			slots = append(slots, s)
		}
		b.settled(2 * len(slots))
		_ = stop()
		for _, s := range slots {
			if r := b.record(s); r.State != job.Succeeded || r.Attempt != 2 {
				t.Errorf("%s is %s at attempt %d: %s", s, r.State, r.Attempt, r.Error)
			}
		}
	})
}

// A slot that ends in any case ends although its definition cannot be read.
func TestWhatEndsAnywayNeedsNoDefinition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Registry = brokenRegistry{}
		stop := b.run()
		missed := job.NewSlot("report", time.Now().Add(-plans.LateAfter))
		old := job.NewSlot("report", time.Now().Add(-2*horizon))
		b.queue.add(core.Message{Slot: missed, Missed: 1, Due: missed.At})
		b.queue.add(core.Message{Slot: old, Due: old.At})
		b.settled(2)
		_ = stop()
		if r := b.record(missed); r.State != job.Missed {
			t.Errorf("left out by policy: %s", r.State)
		}
		if r := b.record(old); r.State != job.Expired {
			t.Errorf("older than the horizon: %s", r.State)
		}
	})
}

type brokenRegistry struct{}

func (brokenRegistry) After(string) []plans.Entry { return nil }

func (brokenRegistry) Known(string, uint64) *plans.Entry { return nil }

func (brokenRegistry) Lookup(context.Context, string, uint64) (plans.Entry, error) {
	return plans.Entry{}, job.ErrVersion
}
