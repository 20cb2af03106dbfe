package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cronce-io/cronce/job"
)

// maxAddedRetry bounds the pause before a job that could not be applied to the registry is tried
// again.
const maxAddedRetry = 30 * time.Second

// Add adds a job to this process, which must not have a job of that name. It does not block: Run
// applies the job to the registry, as Apply does, and repeats that until the registry has
// answered. It may be called at any time.
//
// If Drop has removed another definition of the job, and the registry still has that one, the program
// wants the change: Run applies the job with force. If the registry has a third definition, a later edit
// has replaced the dropped one, and a program in a crash loop must not revert that edit.
func (r *Replica) Add(j job.Job) { r.own.add(j) }

// Drop removes a job from this process. The registry keeps it. It may be called at any time.
func (r *Replica) Drop(name string) { r.own.drop(name) }

// Joined waits until Run has applied the jobs to the registry. The registry then has these
// definitions, or others that take precedence. If this login may not write the registry, a job
// may be missing there. Joined returns an error if ctx or Run ends first.
func (r *Replica) Joined(ctx context.Context, names ...string) error {
	for {
		name, applied := r.own.missing(names)
		if name == "" {
			return nil
		}
		select {
		case <-applied:
		case <-ctx.Done():
			return fmt.Errorf("apply job %s to the registry: no answer yet: %w", name, context.Cause(ctx))
		case <-r.stopped:
			return fmt.Errorf("apply job %s to the registry: %w", name, job.ErrStopping)
		}
	}
}

// newAddedBackoff returns a backoff that never gives up.
func newAddedBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(maxAddedRetry), backoff.WithMaxElapsedTime(0))
}

// applyAdded applies the jobs of Add to the registry until ctx ends.
func (r *Replica) applyAdded(ctx context.Context) {
	retry := newAddedBackoff()
	for ctx.Err() == nil {
		waiting := r.own.list(ownJob.waits)
		if len(waiting) == 0 {
			retry.Reset()
			select {
			case <-r.own.added:
			case <-ctx.Done():
			}
			continue
		}
		err := r.applyWaiting(ctx, waiting)
		switch {
		case err == nil, ctx.Err() != nil:
		case isGone(err):
			r.setUpAgain(ctx)
		default:
			r.log.Error("cannot apply the added jobs to the registry, will retry", "error", err)
			select {
			case <-r.own.added: // a new job must not wait for one that the registry refuses
				retry.Reset()
			case <-time.After(retry.NextBackOff()):
			case <-ctx.Done():
			}
		}
	}
}

// applyWaiting applies added jobs. If the jobs together fail, it applies each by itself, so that none waits
// for one that the registry refuses. Each edit is applied by itself from the first: one that is written must
// not be written again because another one fails, since it would then revert a later edit.
func (r *Replica) applyWaiting(ctx context.Context, waiting []ownJob) error {
	apply := func(jobs ...ownJob) error { return (&applying{Replica: r}).run(ctx, jobs) }
	alone := slices.DeleteFunc(slices.Clone(waiting), func(j ownJob) bool { return len(j.replaces) == 0 })
	together := slices.DeleteFunc(waiting, func(j ownJob) bool { return len(j.replaces) > 0 })
	if len(together) < 2 || apply(together...) != nil {
		alone = append(together, alone...)
	}
	var failed []error
	for _, j := range alone {
		failed = append(failed, apply(j))
	}
	return errors.Join(failed...)
}
