package consumer_test

import (
	"context"
	"strings"
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

func (panicky) Parked(string, int) {}

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
				b.handle(job.Job{Name: "bad", Retry: retry}, func(context.Context, job.Run) error { return nil })
				b.handle(job.Job{Name: "good", Retry: retry}, func(context.Context, job.Run) error { return nil })
				c.harm(b)
				stop := b.run()
				bad := b.publish("bad")
				time.Sleep(5 * time.Minute)
				r := b.record(bad)
				if r.State != c.want || c.want == job.Failed && !strings.Contains(r.Error, "panic: ") {
					t.Errorf("%s %q, want %s", r.State, r.Error, c.want)
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
