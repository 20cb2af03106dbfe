package consumer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/output"
	"github.com/cronce-io/cronce/job"
)

// run runs the handler of a slot that was claimed.
func (t *task) run() flow {
	// The process may have been suspended since its claim was stored (invariant 4).
	if !t.cfg.Node.Trusted() {
		return t.respondWith(silence)
	}
	handler := t.cfg.Handler(t.rec.Slot.Job)
	// Since the claim, the process may have removed the handler, or the grace may have ended.
	if handler == nil || t.handlersCtx.Err() != nil {
		t.releaseClaim()
		return onward
	}
	j := t.policies()
	a := &attempt{task: t, job: j, finish: j.OnLeaseLost == job.LeaseLostFinish, reports: reports{
		Consumer: t.Consumer, slot: t.rec.Slot, attempt: t.rec.Attempt, fence: t.fence, out: output.Buffer{Limit: cmp.Or(j.Output, job.DefaultOutput)},
	}}
	a.reports.log = *slog.New(logLines{&a.reports})
	var cancel context.CancelCauseFunc
	a.ctx, cancel = t.handlerContext(j.Timeout, a.finish)
	defer cancel(nil)
	t.cfg.Table.run(t.key, &attemptRef{fence: t.fence, ctx: a.ctx, end: cancel, finish: a.finish, reports: &a.reports})
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
		if !a.handled { // the handler has called runtime.Goexit: this deferred call takes the remaining steps
			a.returned(errGoexit)
			t.passOn()
			t.advance(true)
		}
	}()
	err := call(traced, handler, job.Run{
		Slot: t.rec.Slot, Shard: t.rec.Slot.Shard, Shards: t.rec.Slot.Shards, Attempt: t.rec.Attempt, Fence: t.fence, Due: t.rec.Due,
		Node: t.rec.Node, Queue: t.cfg.Queue, Namespace: t.cfg.Namespace, OnLeaseLost: j.OnLeaseLost,
		Payload: t.d.Payload, Output: &a.reports, Logger: &a.reports.log, Results: t.results, Reporter: &a.reports,
	})
	return a.returned(err)
}

// attempt is one run of a handler.
type attempt struct {
	*task
	job     job.Job
	ctx     context.Context
	finish  bool // the handler may outlive its incarnation
	began   time.Time
	reports reports
	handled bool // attempt.returned was called
}

// returned releases the permit, and prepares the record of the attempt's result from what the
// handler returned.
func (a *attempt) returned(err error) flow {
	t, took := a.task, time.Since(a.began)
	a.handled = true
	if t.cfg.Observer != nil {
		t.cfg.Observer.Returned(t.cfg.Queue, took)
	}
	// If the handler returned before the lease ended, the worker writes its result even after the
	// lease, when the broker is reachable again. The claim stays valid until another worker proves
	// this node dead and takes the slot over. From then on the broker refuses the write.
	recordsAfterLease := a.finish || t.cfg.Node.Trusted()
	t.cfg.Table.returned(t.key, recordsAfterLease) // from here on it is too late to cancel
	t.unrecorded, t.permit = true, false
	t.limiter.unrecorded <- struct{}{}
	t.next = t.limiter.returned(took)
	cause := context.Cause(a.ctx)
	shadow := errors.Is(err, job.ErrShadow)
	if shadow {
		err = nil
	}
	if err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	t.endTrace(err)
	t.handlerErr = err
	output, value := a.endReports()
	result := core.Result{Err: err, Stopped: errors.Is(cause, job.ErrStopping), Cancelled: core.IsCancellation(cause), Output: output, Value: value, Shadow: shadow}
	if err != nil {
		result.Backoff = delay(a.job.Retry, t.rec.Attempt)
	}
	ctx := t.cfg.Node.Context()
	if recordsAfterLease {
		ctx = t.cfg.Life
	}
	return t.complete(ctx, core.Complete(t.rec, t.fence, t.cfg.Now(), t.horizon(), result))
}

// endReports ends the reports of the handler: later ones are dropped. It sends the output that is
// still in the feed, and returns the output and the result for the record.
func (a *attempt) endReports() (output string, result json.RawMessage) {
	r := &a.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.progressTimer != nil {
		r.progressTimer.Stop()
	}
	if r.feed != nil {
		r.send(true)
	}
	return r.out.String(), r.result
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// call runs the handler, and turns a panic into an error with the stack. The handler runs on the
// goroutine that takes the task's steps. On a goroutine of its own, a short handler would wait
// twice for Go's scheduler while it holds a permit: before it starts, and after it returns.
func call(ctx context.Context, h job.Handler, run job.Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return h(ctx, run)
}

// panicError is the error for a panic. It does not wrap the panic's value. So if a handler
// panics with a Permanent error, the attempt is retried as after any other panic.
type panicError struct {
	value any
	stack []byte
}

// panicked returns the error of a panic, with the stack of the code that panicked. The frames of
// the runtime and of this package are left out, since a record keeps only part of a long error.
func panicked(p any) error {
	stack := string(debug.Stack())
	if _, own, found := strings.Cut(stack, "\npanic("); found {
		stack = "panic(" + own
	}
	if at := strings.Index(stack, "\n"+callFrame); at >= 0 {
		stack = stack[:at]
	}
	return &panicError{p, []byte(stack)}
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// callFrame is how the line of the function named call begins in a stack trace.
const callFrame = "github.com/cronce-io/cronce/consumer.call("

// delay returns the backoff after the n-th attempt. It doubles with each attempt, has jitter,
// and is at most the job's max_backoff.
func delay(r job.Retry, n int) time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.Backoff),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(min(r.MaxBackoff, 1<<62)), // 146 years: jitter would make a longer one overflow
		backoff.WithRandomizationFactor(0.2),
		backoff.WithMaxElapsedTime(0),
	)
	const doublings = 63 // a nanosecond that doubles 63 times is longer than any max_backoff
	for range min(n-1, doublings) {
		b.NextBackOff()
	}
	return min(b.NextBackOff(), r.MaxBackoff)
}

// leaseContext is a handler's context that ends with the lease of its node. Err asks whether
// the node is still trusted. So a handler that calls Err gets the right answer even if the
// process was starved and no timer has fired yet.
//
// Deadline returns the deadline of the job's timeout, and not that of the lease: see
// docs/decisions/0002-deadline-of-a-handlers-context.md.
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

// handlerContext returns a context that ends with the node, when the consumer's grace is over,
// after the job's timeout, or when it is cancelled. Its cause says which came first. If finish
// is true, the handler may outlive the node, and the context does not end with the node.
func (c *Consumer) handlerContext(timeout time.Duration, finish bool) (context.Context, context.CancelCauseFunc) {
	parent := c.handlersCtx
	if finish {
		parent = c.finishCtx
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
