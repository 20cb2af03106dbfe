package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/cronce-io/cronce/job"
)

// leaseContext is a handler's context that ends with its node's lease by the clock: Err
// compares the clock with the trust that is left, so that a handler which asks is right
// even if the process was starved and no timer has fired yet.
//
// Deadline has only the job's timeout. The lease is renewed all the time, but a client
// that reads Deadline once, as gRPC does, would end a long call after one lease. See
// docs/decisions.
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

// handlerContext ends with the node, when the consumer's grace is over, after the
// job's timeout, or when it is cancelled; its cause says which came first. One that
// is to finish does not end with the node.
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
