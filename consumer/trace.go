package consumer

import (
	"context"

	"github.com/cronce-io/cronce/job"
)

// The steps of a slot that are traced, each as often as there are attempts. One
// that gets its outcome without an attempt has only the last.
const (
	StepClaim    = "claim"
	StepRun      = "run"
	StepComplete = "complete"
)

// trace begins a step.
func (t *task) trace(ctx context.Context, step string, rec job.Record) (_ context.Context, ended func(error)) {
	if t.cfg.Trace == nil {
		return ctx, func(error) {}
	}
	return t.cfg.Trace(ctx, step, t.d, rec)
}
