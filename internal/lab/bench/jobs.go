package bench

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// writers is how many goroutines write definitions.
const writers = 64

// makeJobs returns n copies of a job, each with a name of its own, with defaults.
func makeJobs(n int, like job.Job) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = like
		jobs[i].Name = fmt.Sprintf("report-%d", i)
		jobs[i] = jobs[i].WithDefaults()
	}
	return jobs
}

// enter writes the definitions of new jobs and returns their revisions.
func enter(ctx context.Context, store *kv.Store, jobs []job.Job) ([]uint64, error) {
	revisions := make([]uint64, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i, j := range jobs {
		group.Go(func() (err error) {
			d := plans.Definition{Job: j, Owner: plans.OwnerCode, Node: "bench", Nonce: j.Name}
			revisions[i], err = store.Jobs().Write(ctx, d, 0)
			return err
		})
	}
	return revisions, group.Wait()
}
