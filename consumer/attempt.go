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

// run runs the slot's handler, and then those of the slots that its place, and theirs,
// are passed on to: so few goroutines do what many slots need, and none is woken for it.
func (t *task) run() {
	for t != nil {
		v, next := t.attempt()
		t.settle(v)
		t = next
	}
}

// attempt runs the handler of a slot that was claimed, and hands over what came of it.
// next is who has its place now, and is to be run.
func (t *task) attempt() (_ verdict, next *task) {
	c, j, fence := t.Consumer, t.policies(), t.fence
	handler := c.cfg.Handler(t.rec.Slot.Job)
	// Between the won write and here the process may have slept (invariant 4).
	if !c.cfg.Node.Trusted() || handler == nil {
		return silent(), nil
	}
	if !t.placed || c.ended.Err() != nil {
		return t.release(fence), nil
	}
	finish := j.OnLeaseLost == job.LeaseLostFinish
	ctx, cancel := c.handlerContext(j.Timeout, finish)
	defer cancel(nil)
	c.cfg.Table.run(t.key, &running{fence, ctx, cancel, finish})
	out := output{limit: cmp.Or(j.Output, job.DefaultOutput)}
	if c.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		c.cfg.Logger.Debug("slot started", "slot", t.rec.Slot.ID(), "attempt", t.rec.Attempt, "fence", fence)
	}
	t.started(t.rec)
	began := time.Now()
	ctx, ended := t.trace(ctx, StepRun, t.rec)
	conclude := func(err error) verdict {
		c.cfg.Observer.Returned(c.cfg.Queue, time.Since(began))
		next = t.place.returned()
		c.cfg.Table.returned(t.key) // from here on it is too late to cancel
		cause := context.Cause(ctx)
		if err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		ended(err)
		result := job.Result{Err: err, Stopped: errors.Is(cause, job.ErrStopping), Cancelled: job.Ended(cause), Output: out.String()}
		if err != nil {
			result.Backoff = delay(j.Retry, t.rec.Attempt)
		}
		end := job.Complete(t.rec, fence, c.cfg.Now(), c.cfg.Horizon, result)
		if finish {
			return t.complete(c.cfg.Life, end, fence)
		}
		return t.complete(c.cfg.Node.Context(), end, fence)
	}
	returned := false
	defer func() {
		if !returned { // the handler ended this goroutine: what is left to do is done on its way out
			t.settle(conclude(errGoexit))
			if next != nil {
				c.crew.run(next)
			}
		}
	}()
	err := call(ctx, handler, job.Run{
		Slot: t.rec.Slot, Shard: t.rec.Slot.Shard, Shards: t.rec.Slot.Shards, Attempt: t.rec.Attempt, Fence: fence, Due: t.rec.Due,
		Node: t.rec.Node, Queue: c.cfg.Queue, Namespace: c.cfg.Namespace, OnLeaseLost: j.OnLeaseLost,
		Payload: t.d.Payload, Output: &out,
	})
	returned = true
	v := conclude(err)
	return v, next
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
func (t *task) release(fence uint64) verdict {
	return t.complete(t.cfg.Node.Context(), job.Release(t.rec, t.cfg.Now()), fence)
}

// complete hands over the end of an attempt, to be written at the revision of its
// claim. Only when that is answered is the message (invariant 6).
//
// ctx is the node's. Of a handler that was to finish whatever becomes of its node
// it is the process's: its claim stands until somebody has proved the node dead
// and taken the slot over, and the revision tells.
func (t *task) complete(ctx context.Context, end job.Record, fence uint64) verdict {
	t.rec = end
	t.rec.Nonce = t.cfg.Table.nonce(t.cfg.Node.Name())
	_, ended := t.trace(ctx, StepComplete, t.rec)
	if ctx.Err() != nil {
		ended(context.Cause(ctx))
		return t.refused(fence, context.Cause(ctx))
	}
	t.cfg.Ledger.Send(ctx, t.rec, fence, func(revision uint64, err error) {
		if err == nil && t.isBrief() && (!t.entered || t.leaveIn()) {
			t.emit(t.rec, revision)
			t.settle(done())
			return
		}
		t.crew.do(func() { t.settle(t.completed(ctx, fence, ended, revision, err)) })
	})
	return pending()
}

// isBrief reports whether nothing that is left to do when the outcome is stored can
// block, but for leaving its job's lock, so that whoever is told of that does it: nothing
// follows from it, and nobody takes notes.
func (t *task) isBrief() bool {
	return t.rec.State == job.Succeeded && t.rec.Slot.Shards == 0 && t.cfg.Trace == nil &&
		!t.cfg.Logger.Enabled(t.cfg.Life, slog.LevelInfo) && len(t.cfg.Registry.After(t.rec.Slot.Job)) == 0
}

// completed goes on with what was answered to the end of an attempt, and writes it
// until it is stored. A conflict means that the claim was lost: the attempt's end is
// refused, and nothing is sent.
func (t *task) completed(ctx context.Context, fence uint64, ended func(error), revision uint64, err error) verdict {
	var retry *backoff.ExponentialBackOff
	for err != nil {
		if errors.Is(err, job.ErrConflict) {
			ended(err)
			return t.refused(fence, err)
		}
		// Unknown ends with the node's context. Anything else, a full bucket say,
		// may pass: a completion that cannot be written does not ack.
		if ctx.Err() == nil {
			t.cfg.Logger.Error("outcome cannot be recorded; trying again", "slot", t.rec.Slot.ID(), "error", err)
		}
		if retry == nil {
			retry = newBackoff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
		if ctx.Err() != nil {
			ended(context.Cause(ctx))
			return t.refused(fence, context.Cause(ctx))
		}
		revision, err = t.cfg.Ledger.Write(ctx, t.rec, fence)
	}
	ended(nil)
	t.emit(t.rec, revision)
	if t.rec.State == job.Retrying {
		return after(t.rec.RetryAt.Sub(t.cfg.Now()))
	}
	return t.finished(t.rec, revision)
}

func (t *task) refused(fence uint64, why error) verdict {
	end := t.rec
	t.cfg.Logger.Warn("completion refused: the claim was lost", "slot", end.Slot.ID(), "attempt", end.Attempt, "state", end.State, "error", why)
	end.Error = why.Error()
	t.emitKind(job.EventRefused, end, fence, "")
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
