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

	"github.com/cronce-io/cronce/job"
)

// attempt runs the handler of a slot that was claimed at fence, and records what
// came of it.
func (t *task) attempt(rec job.Record, fence uint64) verdict {
	c, j := t.Consumer, t.policies()
	handler := c.cfg.Handler(rec.Slot.Job)
	placed := t.placed || t.place.take(c.ended.Done())
	// Between the won write and here the process may have slept (invariant 4).
	if !c.cfg.Node.Trusted() || handler == nil {
		return silent()
	}
	if !placed || c.ended.Err() != nil {
		return t.release(rec, fence)
	}
	finish := j.OnLeaseLost == job.LeaseLostFinish
	ctx, cancel := c.handlerContext(j.Timeout, finish)
	defer cancel(nil)
	key := rec.Slot.Key()
	c.cfg.Table.run(key, &running{fence, ctx, cancel, finish})
	out := output{limit: cmp.Or(j.Output, job.DefaultOutput)}
	if c.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		c.cfg.Logger.Debug("slot started", "slot", rec.Slot.ID(), "attempt", rec.Attempt, "fence", fence)
	}
	t.started(rec)
	began := time.Now()
	ctx, ended := t.trace(ctx, StepRun, rec)
	conclude := func(err error) verdict {
		c.cfg.Observer.Returned(c.cfg.Queue, time.Since(began))
		t.place.returned()
		c.cfg.Table.returned(key) // from here on it is too late to cancel
		cause := context.Cause(ctx)
		if err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		ended(err)
		result := job.Result{Err: err, Stopped: errors.Is(cause, job.ErrStopping), Cancelled: job.Ended(cause), Output: out.String()}
		if err != nil {
			result.Backoff = delay(j.Retry, rec.Attempt)
		}
		end := job.Complete(rec, fence, c.cfg.Now(), c.cfg.Horizon, result)
		if finish {
			return t.complete(c.cfg.Life, end, fence)
		}
		return t.complete(c.cfg.Node.Context(), end, fence)
	}
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine: what is left to do is done on its way out
			t.settle(conclude(errGoexit))
		}
	}()
	err := call(ctx, handler, job.Run{
		Slot: rec.Slot, Shard: rec.Slot.Shard, Shards: rec.Slot.Shards, Attempt: rec.Attempt, Fence: fence, Due: rec.Due,
		Node: rec.Node, Queue: c.cfg.Queue, Namespace: c.cfg.Namespace, OnLeaseLost: j.OnLeaseLost,
		Payload: t.d.Payload, Output: &out,
	})
	returned = true
	return conclude(err)
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// handlerContext ends with the node, when the consumer's grace is over, after the
// job's timeout, or when it is cancelled; its cause says which came first. One that
// is to finish does not end with the node.
func (c *Consumer) handlerContext(timeout time.Duration, finish bool) (context.Context, context.CancelCauseFunc) {
	parent := c.ended
	if finish {
		parent = c.finishing
	}
	ctx, cancel := context.WithCancelCause(parent)
	if timeout <= 0 {
		return ctx, cancel
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w of %v", job.ErrTimeout, timeout))
	return ctx, func(cause error) { cancel(cause); stop() }
}

// call turns a panic into a failed attempt with its stack. A handler runs on the
// goroutine that serves its slot: on one of its own a short one would wait for it
// to be scheduled, and the slot for that goroutine's word, with a place held.
func call(ctx context.Context, h job.Handler, run job.Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return h(ctx, run)
}

// release gives back a claim that was won when the worker's time was over: its
// attempt never began and does not count.
func (t *task) release(rec job.Record, fence uint64) verdict {
	return t.complete(t.cfg.Node.Context(), job.Release(rec, t.cfg.Now()), fence)
}

// complete writes the end of an attempt at the revision of its claim, until it is
// answered. Only then is the message answered (invariant 6). A conflict means
// that the claim was lost: the attempt's end is refused, and nothing is sent.
//
// ctx is the node's. Of a handler that was to finish whatever becomes of its node
// it is the process's: its claim stands until somebody has proved the node dead
// and taken the slot over, and the revision tells.
func (t *task) complete(ctx context.Context, end job.Record, fence uint64) verdict {
	c := t.Consumer
	end.Nonce = c.cfg.Table.nonce(c.cfg.Node.Name())
	retry := newBackoff()
	_, ended := t.trace(ctx, StepComplete, end)
	for {
		if ctx.Err() != nil {
			ended(context.Cause(ctx))
			return c.refused(end, fence, context.Cause(ctx))
		}
		revision, err := c.cfg.Ledger.Write(ctx, end, fence)
		switch {
		case err == nil:
			ended(nil)
			c.emit(end, revision)
			if end.State == job.Retrying {
				return after(end.RetryAt.Sub(c.cfg.Now()))
			}
			return t.finished(end, revision)
		case errors.Is(err, job.ErrConflict):
			ended(err)
			return c.refused(end, fence, err)
		}
		// Unknown ends with the node's context. Anything else, a full bucket say,
		// may pass: a completion that cannot be written does not ack.
		if ctx.Err() == nil {
			c.cfg.Logger.Error("outcome cannot be recorded; trying again", "slot", end.Slot.ID(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

func (c *Consumer) refused(end job.Record, fence uint64, why error) verdict {
	c.cfg.Logger.Warn("completion refused: the claim was lost", "slot", end.Slot.ID(), "attempt", end.Attempt, "state", end.State, "error", why)
	end.Error = why.Error()
	c.emitKind(job.EventRefused, end, fence, "")
	return silent()
}

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
