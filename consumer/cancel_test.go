package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// byAlice is the cause of a cancel.
var byAlice = core.CancelRequest{By: "alice"}.Cause()

// A request cancels the attempt of its fence, once. The outcome says what the handler did.
func TestARunningSlotIsCancelled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		returns func(ctx context.Context) error
		cause   error
		want    job.State
		reason  string
	}{
		"a handler that returns its context's error": {func(ctx context.Context) error { return ctx.Err() }, byAlice, job.Cancelled, "cancelled by alice: context canceled"},
		"one that returns the cause":                 {context.Cause, byAlice, job.Cancelled, "cancelled by alice"},
		"one that fails for the cancel":              {func(context.Context) error { return errors.New("torn") }, byAlice, job.Cancelled, "cancelled by alice: torn"},
		"one that asks for a retry": {
			func(context.Context) error { return job.RetryAfter(time.Hour, errors.New("torn")) }, byAlice, job.Cancelled, "cancelled by alice: torn",
		},
		"one that panics":        {func(context.Context) error { panic("torn") }, byAlice, job.Cancelled, "cancelled by alice: panic: torn"},
		"one that was done":      {func(context.Context) error { return nil }, byAlice, job.Succeeded, ""},
		"one that gave way":      {context.Cause, core.CancelRequest{By: "report:x", Replaced: true}.Cause(), job.Cancelled, "replaced by report:x"},
		"one with a long breath": {func(ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() }, byAlice, job.Cancelled, "cancelled by alice: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				fence, cause, asked := make(chan uint64, 1), make(chan error, 1), make(chan struct{})
				b.handle(job.Job{Name: "report", Timeout: time.Hour}, func(ctx context.Context, run job.Run) error {
					fence <- run.Fence
					<-ctx.Done()
					cause <- context.Cause(ctx)
					<-asked
					return c.returns(ctx)
				})
				stop := b.run()
				slot := b.publish("report")
				meant := <-fence
				if b.cfg.Table.Cancel(slot.Key(), meant+1, byAlice) || b.cfg.Table.Cancel("other."+slot.Key(), meant, byAlice) {
					t.Error("a claim that is not running here was said to end")
				}
				synctest.Wait()
				if len(cause) > 0 {
					t.Fatal("a request for another claim ended this one")
				}
				for range 2 { // a client without an answer asks again
					if !b.cfg.Table.Cancel(slot.Key(), meant, c.cause) {
						t.Error("not cancelled")
					}
				}
				close(asked)
				if got := <-cause; got.Error() != c.cause.Error() {
					t.Errorf("cause %q, want %q", got, c.cause)
				}
				time.Sleep(2 * time.Minute)
				r := b.record(slot)
				if r.State != c.want || !strings.HasPrefix(r.Error, c.reason) || (c.reason == "") != (r.Error == "") {
					t.Errorf("%s with %q, want %s with %q", r.State, r.Error, c.want, c.reason)
				}
				if got, want := fmt.Sprint(b.queue.verdicts()), fmt.Sprintf("[ack %s]", slot); got != want {
					t.Errorf("verdicts %s, want %s", got, want)
				}
				if got, want := fmt.Sprint(b.kinds()), fmt.Sprintf("[%s]", c.want); got != want {
					t.Errorf("events %s, want %s", got, want)
				}
				if b.cfg.Table.Cancel(slot.Key(), meant, byAlice) {
					t.Error("a slot that has its outcome was said to end")
				}
				_ = stop()
			})
		})
	}
}

// An attempt that has ended for another reason keeps that reason.
func TestACancelThatComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ended := make(chan uint64, 1)
		b.handle(job.Job{Name: "report", Timeout: time.Second}, func(ctx context.Context, run job.Run) error {
			if run.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			ended <- run.Fence
			time.Sleep(time.Second)
			return ctx.Err()
		})
		stop := b.run()
		slot := b.publish("report")
		if fence := <-ended; b.cfg.Table.Cancel(slot.Key(), fence, byAlice) {
			t.Error("an attempt past its timeout was said to end for the cancel")
		}
		time.Sleep(time.Minute)
		if r := b.record(slot); r.State != job.Succeeded || r.Attempt != 2 {
			t.Errorf("%s after %d attempts, want the retry's success", r.State, r.Attempt)
		}
		_ = stop()
	})
}
