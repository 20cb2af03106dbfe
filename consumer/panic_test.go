package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// panicky is an Observer that panics when a handler returns that took this long.
type panicky struct {
	started, returned bool
}

func (p panicky) Started(string, time.Duration, bool) {
	if p.started {
		panic("observer: started")
	}
}

func (p panicky) Returned(string, time.Duration) {
	if p.returned {
		panic("observer: returned")
	}
}

func (panicky) Waits(string) {}

// panickyLedger is a ledger that panics when it encodes the records that match selects.
type panickyLedger struct {
	*hookedLedger
	match func(job.Record) bool
}

func (l panickyLedger) Send(ctx context.Context, r job.Record, revision uint64, answered func(uint64, error)) {
	if l.match(r) {
		panic("encoder")
	}
	l.hookedLedger.Send(ctx, r, revision, answered)
}

// panickyLog is a log that panics at one message.
type panickyLog struct {
	slog.Handler
	message string
}

func (l panickyLog) Enabled(context.Context, slog.Level) bool { return true }
func (l panickyLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l panickyLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.message {
		panic("log")
	}
	return nil
}

// If the worker's own code panics around one slot, the other slots go on, its permit is
// released, and the slot has an outcome, or comes again if it never started.
func TestAPanicInTheWorkersOwnCodeIsThatSlotsFailure(t *testing.T) {
	t.Parallel()
	once := func(b *bench, name string) func() bool { // the first call for a slot of the job
		done := map[string]bool{}
		return func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			defer func() { done[name] = true }()
			return !done[name]
		}
	}
	for name, c := range map[string]struct {
		harm func(*bench)
		want job.State
	}{
		"before the claim": {func(b *bench) {
			first := once(b, "bad")
			handler := b.cfg.Handler
			b.cfg.Handler = func(name string) job.Handler {
				if name == "bad" && first() {
					panic("lookup")
				}
				return handler(name)
			}
		}, job.Succeeded},
		"after the claim, before the handler": {func(b *bench) {
			b.cfg.Trace = func(ctx context.Context, step string, d core.Delivery, _ job.Record) (context.Context, func(error)) {
				if d.Slot.Job == "bad" && step == "run" {
					panic("trace")
				}
				return ctx, func(error) {}
			}
		}, job.Failed},
		"when the handler has returned": {func(b *bench) {
			b.cfg.Trace = func(ctx context.Context, step string, d core.Delivery, _ job.Record) (context.Context, func(error)) {
				return ctx, func(error) {
					if d.Slot.Job == "bad" && step == "run" {
						panic("span")
					}
				}
			}
		}, job.Failed},
		"when the outcome is stored": {func(b *bench) {
			first := once(b, "bad")
			emit := b.cfg.Emit
			b.cfg.Emit = func(e job.Event) {
				if e.Job == "bad" && first() {
					panic("emit")
				}
				emit(e)
			}
		}, job.Succeeded},
		"in the trace of the result": {func(b *bench) {
			b.cfg.Trace = func(ctx context.Context, step string, d core.Delivery, _ job.Record) (context.Context, func(error)) {
				if d.Slot.Job == "bad" && step == "complete" {
					panic("trace")
				}
				return ctx, func(error) {}
			}
		}, job.Succeeded},
		"in the write of the result": {func(b *bench) {
			b.cfg.Ledger = panickyLedger{b.ledger, func(r job.Record) bool { return r.Slot.Job == "bad" && r.State == job.Succeeded }}
		}, job.Failed},
		"when the result is refused": {func(b *bench) {
			first := once(b, "bad")
			b.ledger.before = func(r job.Record, _ uint64) error {
				if r.Slot.Job == "bad" && r.State == job.Succeeded && first() {
					return errors.New("bucket full")
				}
				return nil
			}
			b.cfg.Logger = slog.New(panickyLog{slog.DiscardHandler, "outcome cannot be recorded; trying again"})
		}, job.Succeeded},
		"in the answer to the claim": {func(b *bench) {
			b.cfg.Observer = panicky{started: true}
		}, job.Failed},
		"in the count of handlers": {func(b *bench) {
			b.cfg.Observer = panicky{returned: true}
		}, job.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.cfg.Concurrency = 2
				retry := job.Retry{Attempts: 1}
				starts := 0
				b.handle(job.Job{Name: "bad", Retry: retry}, func(context.Context, job.Run) error { starts++; return nil })
				b.handle(job.Job{Name: "good", Retry: retry}, func(context.Context, job.Run) error { return nil })
				c.harm(b)
				stop := b.run()
				bad := b.publish("bad")
				time.Sleep(5 * time.Minute)
				r := b.record(bad)
				if r.State != c.want || c.want == job.Failed && !strings.Contains(r.Error, "panic: ") {
					t.Errorf("%s %q, want %s", r.State, r.Error, c.want)
				}
				if starts > 1 {
					t.Errorf("the handler started %d times in one attempt", starts)
				}
				if b.cfg.Observer == nil {
					for range 5 {
						good := b.publish("good")
						time.Sleep(2 * time.Second)
						if r := b.record(good); r.State != job.Succeeded {
							t.Errorf("the slot of another job is %s: %s", r.State, r.Error)
						}
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := b.cfg.Table.Size(); n != 0 {
					t.Errorf("%d slots are still owed", n)
				}
			})
		})
	}
}

// A result that may have been stored is written again unchanged after a panic: only the same write
// finds out whether it was.
func TestAResultThatMayHaveBeenStoredIsWrittenAgainUnchangedAfterAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "bad", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error { return nil })
		var written []job.Record
		b.ledger.before = func(r job.Record, _ uint64) error {
			if r.State == job.Running {
				return nil
			}
			if written = append(written, r); len(written) == 1 {
				return job.ErrUnknown
			}
			return nil
		}
		b.cfg.Logger = slog.New(panickyLog{slog.DiscardHandler, "outcome cannot be recorded; trying again"})
		stop := b.run()
		s := b.publish("bad")
		time.Sleep(5 * time.Minute)
		if r := b.record(s); r.State != job.Succeeded || len(written) != 2 || written[0].Nonce != written[1].Nonce {
			t.Errorf("%s after the writes %+v, want the same one twice", r.State, written)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAConsumerDoesNotWaitForAnAbandonedSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.handle(job.Job{Name: "bad"}, func(context.Context, job.Run) error { return nil })
		b.handle(job.Job{Name: "long"}, func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return ctx.Err() })
		b.cfg.Ledger = panickyLedger{b.ledger, func(r job.Record) bool { return r.Slot.Job == "bad" && r.State != job.Running }}
		var log strings.Builder
		b.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		stop := b.run()
		bad := b.publish("bad")
		b.publish("long")
		time.Sleep(time.Minute)
		b.node.lose(job.ErrLeaseLost)
		if err := stop(); !errors.Is(err, job.ErrLeaseLost) || strings.Contains(log.String(), "handlers have not returned") {
			t.Errorf("%v; the log:\n%s", err, &log)
		}
		if holds, _ := b.cfg.Table.Holds(bad.Key()); !holds {
			t.Error("the slot is not in the table any more")
		}
		if n := b.cfg.Table.Len("A"); n != 0 {
			t.Errorf("the node works on %d slots, and so does not record that it has stopped; want none", n)
		}
	})
}

// A handler whose result cannot be written is not started again: its slot stays in the table until
// it is past the horizon. Then this worker ends it, or any other.
func TestAHandlerIsNotStartedAgainIfNoResultOfItCanBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		starts := 0
		b.handle(job.Job{Name: "bad"}, func(context.Context, job.Run) error { starts++; return nil })
		b.cfg.Horizon = 10 * time.Minute
		var mended atomic.Bool
		b.cfg.Ledger = panickyLedger{b.ledger, func(r job.Record) bool { return r.State != job.Running && !mended.Load() }}
		stop := b.run()
		s := b.publish("bad")
		time.Sleep(5 * time.Minute)
		holds, ended := b.cfg.Table.Holds(s.Key())
		if starts != 1 || !holds || !ended || len(b.queue.verdicts()) > 0 {
			t.Errorf("started %d times; in the table: %v, ended: %v; answers: %v", starts, holds, ended, b.queue.verdicts())
		}
		mended.Store(true)
		time.Sleep(4 * time.Minute)
		if r := b.record(s); r.State != job.Running {
			t.Errorf("before the horizon the slot is %s", r.State)
		}
		time.Sleep(2 * time.Minute)
		if r := b.record(s); starts != 1 || r.State != job.Failed || r.Attempt != 1 || len(r.Attempts) != 1 {
			t.Errorf("past the horizon, after %d starts, the record is %+v", starts, r)
		}
		if n := b.cfg.Table.Size(); n != 0 {
			t.Errorf("%d slots are still owed", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
