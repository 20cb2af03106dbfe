// Package inject connects croncetest with a cronce.Scheduler. croncetest replaces parts of the
// Scheduler (Parts), and reads its state (Inside). Users cannot import it, so none of this is in
// the public API.
package inject

import (
	"context"
	"time"

	"github.com/cronce-io/cronce/internal/fleet/clock"
	"github.com/cronce-io/cronce/job"
)

// Parts replace parts of a Scheduler.
type Parts struct {
	// Clock replaces the estimate of the broker's clock, and Stamp converts the broker's timestamps
	// to it.
	Clock *clock.Clock
	Stamp func(time.Time) time.Time

	// Made is called once the Scheduler is created.
	Made func(Inside)
}

// Inside gives croncetest access to the state of a Scheduler.
type Inside interface {
	// Jobs returns the jobs that have a handler now.
	Jobs() []job.Job

	// Joined waits until Run has applied these jobs to the registry, or has found out why it
	// cannot.
	Joined(ctx context.Context) error
}

type key struct{}

// With returns a context that gives the parts to cronce.New.
func With(ctx context.Context, p Parts) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the parts of the context, or the zero value.
func From(ctx context.Context) Parts {
	p, _ := ctx.Value(key{}).(Parts)
	return p
}
