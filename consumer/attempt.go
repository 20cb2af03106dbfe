package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// run runs the slot's handler, and then those of claimed slots that its place is passed
// on to: few goroutines do what many slots need, and none is woken for each.
func (t *task) run() {
	for t != nil {
		t = t.runOne()
	}
}

// runOne returns the slot that has the place now. If the handler ends its goroutine,
// that slot needs another one.
func (t *task) runOne() (next *task) {
	exiting := true
	defer func() {
		if p := recover(); p != nil {
			exiting = false
			t.failed(p)
		}
		if next = t.next; exiting && next != nil {
			next.crew.run(next)
		}
	}()
	t.settle(t.attempt())
	exiting = false
	return nil
}

// attempt runs the handler of a slot that was claimed, and hands over what came of it.
func (t *task) attempt() verdict {
	c, j, fence := t.Consumer, t.policies(), t.fence
	// Between the won write and here the process may have slept (invariant 4).
	if !c.cfg.Node.Trusted() {
		return silent()
	}
	handler := c.cfg.Handler(t.rec.Slot.Job)
	// The job may have been dropped from the process since the claim.
	if !t.placed || handler == nil || c.ended.Err() != nil {
		return t.giveBack(fence)
	}
	finish := j.OnLeaseLost == job.LeaseLostFinish
	ctx, cancel := c.handlerContext(j.Timeout, finish)
	defer cancel(nil)
	c.cfg.Table.run(t.key, &running{fence: fence, ctx: ctx, end: cancel, finish: finish})
	out := output{limit: cmp.Or(j.Output, job.DefaultOutput)}
	if c.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		c.cfg.Logger.Debug("slot started", "slot", t.rec.Slot.ID(), "attempt", t.rec.Attempt, "fence", fence)
	}
	t.started(t.rec)
	began := time.Now()
	traced, ended := t.trace(ctx, StepRun, t.rec)
	conclude := func(err error) verdict {
		took := time.Since(began)
		c.cfg.Observer.Returned(c.cfg.Queue, took)
		// A success of a handler that returned in time is recorded even if the broker
		// is away until after the lease: the revision of the claim says whether it counts.
		inTime := finish || c.cfg.Node.Trusted()
		c.cfg.Table.returned(t.key, inTime) // from here on it is too late to cancel
		t.unrecorded, t.placed = true, false
		c.limiter.unrecorded <- struct{}{}
		t.next = c.limiter.returned(took)
		cause := context.Cause(ctx)
		if err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		ended(err)
		result := core.Result{Err: err, Stopped: errors.Is(cause, job.ErrStopping), Cancelled: core.Ended(cause), Output: out.String()}
		if err != nil {
			result.Backoff = delay(j.Retry, t.rec.Attempt)
		}
		end := core.Complete(t.rec, fence, c.cfg.Now(), c.horizon(), result)
		if inTime {
			return t.complete(c.cfg.Life, end, fence)
		}
		return t.complete(c.cfg.Node.Context(), end, fence)
	}
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine: what is left to do is done on its way out
			returned = true
			t.settle(conclude(errGoexit))
		}
	}()
	err := call(traced, handler, job.Run{
		Slot: t.rec.Slot, Shard: t.rec.Slot.Shard, Shards: t.rec.Slot.Shards, Attempt: t.rec.Attempt, Fence: fence, Due: t.rec.Due,
		Node: t.rec.Node, Queue: c.cfg.Queue, Namespace: c.cfg.Namespace, OnLeaseLost: j.OnLeaseLost,
		Payload: t.d.Payload, Output: &out,
	})
	returned = true
	return conclude(err)
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// call turns a panic into a failed attempt with its stack. A handler runs on the
// goroutine that serves its slot: on one of its own a short one would wait for it
// to be scheduled, and the slot for that goroutine's word, with a place held.
func call(ctx context.Context, h job.Handler, run job.Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return h(ctx, run)
}

func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// delay is the backoff after the n-th attempt: doubling, with jitter, at most
// the job's max_backoff.
func delay(r job.Retry, n int) time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.Backoff),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(r.MaxBackoff),
		backoff.WithRandomizationFactor(0.2),
		backoff.WithMaxElapsedTime(0),
	)
	const doublings = 32 // from any backoff to any sensible max_backoff
	for range min(n, doublings) - 1 {
		b.NextBackOff()
	}
	return min(b.NextBackOff(), r.MaxBackoff)
}

// output keeps the first bytes and takes the rest in silence. It is safe for
// concurrent use: a handler may leave writers behind.
type output struct {
	limit int
	mu    sync.Mutex
	kept  []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, p[:min(len(p), o.limit-len(o.kept))]...)
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.kept)
}
