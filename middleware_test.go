package cronce_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestMiddlewareWrapsFromTheOutsideInAndSeesWhatHandlersReturn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	type key struct{}
	var mu sync.Mutex
	var calls []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, fmt.Sprintf(format, args...))
	}
	layer := func(name string) func(job.Handler) job.Handler {
		return func(next job.Handler) job.Handler {
			return func(ctx context.Context, run job.Run) (err error) {
				note("%s begins", name)
				defer func() { note("%s: %v", name, err) }()
				return next(context.WithValue(ctx, key{}, name), run)
			}
		}
	}
	s, _ := scheduler(t, srv, cronce.WithMiddleware(layer("first"), layer("second")), cronce.WithMiddleware(layer("third")))
	err := errors.Join(
		s.Handle(someday("plain"), func(ctx context.Context, _ job.Run) error { note("handler in %v", ctx.Value(key{})); return nil }),
		cronce.HandleFunc(s, someday("typed"), func(context.Context, job.Run, int) error { return nil }),
		s.Handle(job.Job{Name: "panics", Schedule: "@yearly", Retry: job.Retry{Attempts: 1}}, func(context.Context, job.Run) error { panic("boom") }),
	)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	store := stored(t, srv)
	outcome(t, store, trigger(t, s, "plain", ""))
	outcome(t, store, trigger(t, s, "typed", `"x"`))
	if r := outcome(t, store, trigger(t, s, "panics", "")); r.State != job.Failed || !strings.HasPrefix(r.Error, "panic: boom") {
		t.Errorf("%s: %s", r.State, r.Error)
	}
	begin := []string{"first begins", "second begins", "third begins"}
	refused := "invalid payload: got string, want int"
	want := slices.Concat(
		begin, []string{"handler in third", "third: <nil>", "second: <nil>", "first: <nil>"},
		begin, []string{"third: " + refused, "second: " + refused, "first: " + refused},
		begin, []string{"third: <nil>", "second: <nil>", "first: <nil>"}, // a panic passes through
	)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(calls, want) {
		t.Errorf("calls\n%q, want\n%q", calls, want)
	}
}

// Invariant 4 holds for what middleware adds: a context that it derives ends with the lease.
func TestMiddlewaresContextEndsWithTheLease(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	proxy := natstest.NewProxy(t, srv.ClientURL())
	nc := natstest.Connect(t, proxy.URL())
	began, causes := make(chan struct{}, 10), make(chan error, 10)
	s, err := cronce.New(t.Context(), nc, cronce.WithSettings(job.Settings{Lease: 2 * time.Second}), cronce.WithMiddleware(func(next job.Handler) job.Handler {
		return func(ctx context.Context, run job.Run) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			return next(ctx, run)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Handle(everySecond("report"), func(ctx context.Context, _ job.Run) error {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	wait(t, began, "a handler to start")
	proxy.Stall()
	cause := wait(t, causes, "the handler's context to end")
	proxy.Heal()
	if !errors.Is(cause, job.ErrLeaseLost) {
		t.Errorf("it ended with %v", cause)
	}
}

func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(natstest.Patience):
		t.Fatal("waited in vain for " + what)
		panic("unreachable")
	}
}

func TestMiddlewareThatReturnsNoHandlerIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, nc := scheduler(t, srv, cronce.WithMiddleware(func(job.Handler) job.Handler { return nil }))
	if err := s.Handle(everySecond("report"), nothing); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("Handle: %v", err)
	}
	for name, option := range map[string]cronce.Option{
		"middleware": cronce.WithMiddleware(nil), "hook": cronce.WithErrorHook(nil),
		"queue": cronce.WithQueueConcurrency("a.b", 1), "concurrency": cronce.WithQueueConcurrency("a", 0),
	} {
		if _, err := cronce.New(t.Context(), nc, option); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorHookIsCalledOnceForEachFailedAttempt(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	failed := make(chan job.Failure, 10)
	s, _ := scheduler(t, srv, cronce.WithErrorHook(func(f job.Failure) { failed <- f }))
	retry := job.Retry{Attempts: 2, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}
	handle(t, s, job.Job{Name: "report", Schedule: "@yearly", Retry: retry}, func(_ context.Context, run job.Run) error {
		if run.Attempt == 1 {
			return errors.New("no paper")
		}
		panic("on fire")
	})
	stop := running(t, s)
	slot := trigger(t, s, "report", "")
	outcome(t, stored(t, srv), slot)
	stop()
	close(failed)
	var all []job.Failure
	for f := range failed {
		all = append(all, f)
	}
	if len(all) != 2 {
		t.Fatalf("called %d times: %+v", len(all), all)
	}
	if f := all[0]; f.Slot != slot || f.Attempt != 1 || f.Final || f.RetryAt.IsZero() || f.Err.Error() != "no paper" || f.Stack != nil || f.Fence == 0 {
		t.Errorf("first %+v", f)
	}
	if f := all[1]; f.Slot != slot || f.Attempt != 2 || !f.Final || f.Err.Error() != "panic: on fire" || !strings.Contains(string(f.Stack), "middleware_test.go") {
		t.Errorf("second %+v", f)
	}
}

func TestAHookThatMisbehavesHurtsNoSlot(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(n int64, release <-chan struct{}){
		"blocks":    func(_ int64, release <-chan struct{}) { <-release },
		"panics":    func(int64, <-chan struct{}) { panic("hook") },
		"ends":      func(int64, <-chan struct{}) { runtime.Goexit() },
		"sometimes": func(n int64, _ <-chan struct{}) { panicIf(n%2 == 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t)
			var calls atomic.Int64
			release := make(chan struct{})
			s, _ := scheduler(t, srv, cronce.WithErrorHook(func(job.Failure) { hook(calls.Add(1), release) }), cronce.WithConcurrency(1))
			handle(t, s, job.Job{Name: "report", Schedule: "@yearly", Overlap: job.OverlapAllow}, func(context.Context, job.Run) error {
				return job.Permanent(errors.New("no paper"))
			})
			stop := running(t, s)
			store := stored(t, srv)
			const n = 5
			for range n {
				if r := outcome(t, store, trigger(t, s, "report", "")); r.State != job.Failed {
					t.Errorf("%s: %s", r.State, r.Error)
				}
			}
			close(release)
			stop()
			if got := calls.Load(); got != n {
				t.Errorf("the hook was called %d times, want %d", got, n)
			}
		})
	}
}

func panicIf(bad bool) {
	if bad {
		panic("hook")
	}
}
