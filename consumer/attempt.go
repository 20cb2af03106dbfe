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

// run runs the handler of a slot that was claimed.
func (t *task) run() progress {
	// The process may have slept between the won write and here (invariant 4).
	if !t.cfg.Node.Trusted() {
		return t.end(silence)
	}
	handler := t.cfg.Handler(t.rec.Slot.Job)
	// The job may have been dropped from the process since the claim.
	if handler == nil || t.ended.Err() != nil {
		t.release()
		return onward
	}
	j := t.policies()
	a := &attempt{task: t, job: j, finish: j.OnLeaseLost == job.LeaseLostFinish, out: output{limit: cmp.Or(j.Output, job.DefaultOutput)}}
	var cancel context.CancelCauseFunc
	a.ctx, cancel = t.handlerContext(j.Timeout, a.finish)
	defer cancel(nil)
	t.cfg.Table.run(t.key, &attemptRef{fence: t.fence, ctx: a.ctx, end: cancel, finish: a.finish})
	if t.cfg.Logger.Enabled(a.ctx, slog.LevelDebug) {
		t.cfg.Logger.Debug("slot started", "slot", t.rec.Slot.ID(), "attempt", t.rec.Attempt, "fence", t.fence)
	}
	if t.cfg.Observer != nil {
		t.started(t.rec)
	}
	a.began = time.Now()
	traced, endTrace := t.trace(a.ctx, StepRun, t.rec)
	t.endTrace = endTrace
	defer func() {
		if !a.over { // the handler has called runtime.Goexit: this deferred call takes the remaining steps
			a.returned(errGoexit)
			t.passOn()
			t.advance(true)
		}
	}()
	err := call(traced, handler, job.Run{
		Slot: t.rec.Slot, Shard: t.rec.Slot.Shard, Shards: t.rec.Slot.Shards, Attempt: t.rec.Attempt, Fence: t.fence, Due: t.rec.Due,
		Node: t.rec.Node, Queue: t.cfg.Queue, Namespace: t.cfg.Namespace, OnLeaseLost: j.OnLeaseLost,
		Payload: t.d.Payload, Output: &a.out,
	})
	return a.returned(err)
}

// attempt is a handler that runs.
type attempt struct {
	*task
	job    job.Job
	ctx    context.Context
	finish bool // the handler may outlive its incarnation
	began  time.Time
	out    output
	over   bool
}

// returned releases the permit, and prepares the record of the attempt's result from what the
// handler returned.
func (a *attempt) returned(err error) progress {
	t, took := a.task, time.Since(a.began)
	a.over = true
	if t.cfg.Observer != nil {
		t.cfg.Observer.Returned(t.cfg.Queue, took)
	}
	// A success of a handler that returned in time is recorded even if the broker is
	// away until after the lease: the revision of the claim says whether it counts.
	inTime := a.finish || t.cfg.Node.Trusted()
	t.cfg.Table.returned(t.key, inTime) // from here on it is too late to cancel
	t.unrecorded, t.permit = true, false
	t.limiter.unrecorded <- struct{}{}
	t.next = t.limiter.returned(took)
	cause := context.Cause(a.ctx)
	if err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	t.endTrace(err)
	result := core.Result{Err: err, Stopped: errors.Is(cause, job.ErrStopping), Cancelled: core.Ended(cause), Output: a.out.String()}
	if err != nil {
		result.Backoff = delay(a.job.Retry, t.rec.Attempt)
	}
	ctx := t.cfg.Node.Context()
	if inTime {
		ctx = t.cfg.Life
	}
	return t.complete(ctx, core.Complete(t.rec, t.fence, t.cfg.Now(), t.horizon(), result))
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// call runs the handler, and turns a panic into an error with the stack. The handler runs on
// the task's goroutine. On a goroutine of its own, a short handler would be scheduled twice
// while it holds a permit.
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

// output keeps the first bytes and discards the rest. It is safe for concurrent use: a
// handler may leave writers behind.
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

// leaseContext is a handler's context that ends with the lease of its node. Err asks whether
// the node is still trusted. So a handler that calls Err gets the right answer even if the
// process was starved and no timer has fired yet.
//
// Deadline has only the job's timeout: see docs/decisions/0002-deadline-of-a-handlers-context.md.
type leaseContext struct {
	context.Context
	trusted func() bool
	cancel  context.CancelCauseFunc
}

func (c leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !c.trusted() {
		c.cancel(fmt.Errorf("%w: no heartbeat was acknowledged in time", job.ErrLeaseLost))
	}
	return c.Context.Err()
}

// handlerContext returns a context that ends with the node, when the consumer's grace is
// over, after the job's timeout, or when it is cancelled. Its cause says which came first.
// If the handler is to finish, the context does not end with the node.
func (c *Consumer) handlerContext(timeout time.Duration, finish bool) (context.Context, context.CancelCauseFunc) {
	parent := c.ended
	if finish {
		parent = c.finishing
	}
	ctx, cancel := context.WithCancelCause(parent)
	end := cancel
	if timeout > 0 {
		timed, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w of %v", job.ErrTimeout, timeout))
		ctx, end = timed, func(cause error) { cancel(cause); stop() }
	}
	if finish {
		return ctx, end
	}
	return leaseContext{ctx, c.cfg.Node.Trusted, cancel}, end
}
