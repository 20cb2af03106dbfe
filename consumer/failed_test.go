package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/job"
)

// failures collects what Config.Failed is called with.
type failures struct {
	mu  sync.Mutex
	all []job.Failure
}

func (f *failures) add(one job.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
}

func (f *failures) of(b *bench) { b.cfg.Failed = f.add }

func TestFailedIsCalledOnceForEachFailedAttemptWithItsFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var f failures
		f.of(b)
		var fences []uint64
		b.handle(job.Job{Name: "report", Retry: job.Retry{Attempts: 4}}, func(_ context.Context, run job.Run) error {
			fences = append(fences, run.Fence)
			switch run.Attempt {
			case 1:
				return io.ErrUnexpectedEOF
			case 2:
				panic(job.Permanent(io.ErrClosedPipe))
			case 3:
				return job.Permanent(errors.New("no such customer"))
			}
			return nil
		})
		stop := b.run()
		slot := b.publish("report")
		b.settled(3)
		_ = stop()
		if len(f.all) != 3 {
			t.Fatalf("called %d times, want 3: %+v", len(f.all), f.all)
		}
		for i, got := range f.all {
			if got.Slot != slot || got.Attempt != i+1 || got.MaxAttempts != 4 || got.Fence != fences[i] || got.Queue != "default" || got.Node == "" {
				t.Errorf("call %d: %+v", i+1, got)
			}
			if got.Final != (i == 2) || got.RetryAt.IsZero() != (i == 2) {
				t.Errorf("call %d: final %v, retry at %v", i+1, got.Final, got.RetryAt)
			}
			if isPanic := i == 1; isPanic != strings.Contains(string(got.Stack), "failed_test.go") {
				t.Errorf("call %d: stack %q", i+1, got.Stack)
			}
		}
		first, second := f.all[0].Err, f.all[1].Err
		if !errors.Is(first, io.ErrUnexpectedEOF) || !errors.Is(second, io.ErrClosedPipe) || second.Error() != "panic: io: read/write on closed pipe" {
			t.Errorf("errors %v, %v", first, second)
		}
	})
}

func TestFailedIsNotCalledForWhatIsNoFailedAttempt(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(b *bench, ctx context.Context, run job.Run) error{
		"success": func(*bench, context.Context, job.Run) error { return nil },
		"cancelled": func(b *bench, ctx context.Context, run job.Run) error {
			b.cfg.Table.Cancel(run.Slot.Key(), run.Fence, fmt.Errorf("%w by alice", job.ErrCancelled))
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var f failures
				f.of(b)
				b.handle(job.Job{Name: "report"}, func(ctx context.Context, run job.Run) error { return handler(b, ctx, run) })
				stop := b.run()
				b.publish("report")
				b.settled(1)
				_ = stop()
				if len(f.all) > 0 {
					t.Errorf("called with %+v", f.all)
				}
			})
		})
	}
}

// The claim is lost while the handler runs: its result is refused, so it is no attempt of the record.
func TestFailedIsNotCalledForARefusedResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var f failures
		f.of(b)
		returned := make(chan struct{})
		b.handle(job.Job{Name: "report", OnLeaseLost: job.LeaseLostFinish}, func(ctx context.Context, run job.Run) error {
			defer close(returned)
			slot := run.Slot
			r, revision, err := b.ledger.Read(ctx, slot)
			if err == nil {
				r.Node, r.Attempt = "thief", r.Attempt+1
				_, err = b.ledger.Write(ctx, r, revision)
			}
			if err != nil {
				t.Error(err)
			}
			return errors.New("too late")
		})
		stop := b.run()
		b.publish("report")
		<-returned
		time.Sleep(time.Second)
		_ = stop()
		if len(f.all) > 0 {
			t.Errorf("called with %+v", f.all)
		}
	})
}
