package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// maxAddedRetry bounds the pause before a job that could not be applied to the registry is tried
// again.
const maxAddedRetry = 30 * time.Second

// addedJobs are the jobs that Add has added and that are not in the registry yet. It is safe for
// concurrent use.
type addedJobs struct {
	notify chan struct{}

	mu      sync.Mutex
	serial  int
	byName  map[string]addedJob
	dropped map[string]droppedJob
}

// addedJob is a job with the serial number of its call of Add. edit reports that it replaces another
// definition, which this process dropped.
type addedJob struct {
	job    job.Job
	edit   bool
	serial int
}

// droppedJob is the hash of a job that Drop has removed. edit reports that it was an edit that the
// registry has not taken yet.
type droppedJob struct {
	hash string
	edit bool
}

func newAddedJobs() *addedJobs {
	return &addedJobs{notify: make(chan struct{}, 1), byName: map[string]addedJob{}, dropped: map[string]droppedJob{}}
}

// hashOf returns the hash of a job that was validated. Its JSON is that of the registry.
func hashOf(j job.Job) string {
	hash, _ := j.WithDefaults().Hash()
	return hash
}

func (l *addedJobs) add(j job.Job) {
	l.mu.Lock()
	l.serial++
	before, ok := l.dropped[j.Name]
	l.byName[j.Name] = addedJob{j, ok && (before.edit || before.hash != hashOf(j)), l.serial}
	delete(l.dropped, j.Name)
	l.mu.Unlock()
	core.TrySend(l.notify, struct{}{})
}

func (l *addedJobs) drop(j job.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped[j.Name] = droppedJob{hashOf(j), l.byName[j.Name].edit}
	delete(l.byName, j.Name)
}

// get returns the jobs, and apart from them those that are edits. Call done with those that are in the
// registry.
func (l *addedJobs) get() (jobs, edits []job.Job, done func(...job.Job)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	upTo := l.serial
	for _, a := range l.byName {
		if a.edit {
			edits = append(edits, a.job)
		} else {
			jobs = append(jobs, a.job)
		}
	}
	return jobs, edits, func(written ...job.Job) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, j := range written {
			if l.byName[j.Name].serial <= upTo {
				delete(l.byName, j.Name)
			}
		}
	}
}

// Add adds a job to this process, which must not have a job of that name. It does not block: Run
// applies the job to the registry, as Apply does, and repeats that until the registry has
// answered. It may be called at any time.
//
// If Drop has removed another definition of the job, the program wants the change: Run applies the
// job with force. A program that has just started may be an old one that starts again and again.
func (r *Replica) Add(j job.Job) {
	r.mu.Lock()
	r.jobs = append(r.jobs, j)
	r.mu.Unlock()
	r.added.add(j)
}

// Drop removes a job from this process. The registry keeps it. It may be called at any time.
func (r *Replica) Drop(name string) {
	r.mu.Lock()
	if i := slices.IndexFunc(r.jobs, func(j job.Job) bool { return j.Name == name }); i >= 0 {
		r.added.drop(r.jobs[i])
		r.jobs = slices.Delete(r.jobs, i, i+1)
	}
	r.mu.Unlock()
	r.applied.drop(name)
}

// Joined waits until Run has applied the jobs to the registry. The registry then has these
// definitions, or others that take precedence. If this login may not write the registry, a job
// may be missing there. Joined returns an error if ctx or Run ends first.
func (r *Replica) Joined(ctx context.Context, names ...string) error {
	for {
		name, added := r.applied.missing(names)
		if name == "" {
			return nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return fmt.Errorf("apply job %s to the registry: no answer yet: %w", name, context.Cause(ctx))
		case <-r.stopped:
			return fmt.Errorf("apply job %s to the registry: %w", name, job.ErrStopping)
		}
	}
}

// applyAdded applies the jobs of Add to the registry until ctx ends.
func (r *Replica) applyAdded(ctx context.Context) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(maxAddedRetry), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		jobs, edits, done := r.added.get()
		if len(jobs)+len(edits) == 0 {
			retry.Reset()
			select {
			case <-r.added.notify:
			case <-ctx.Done():
			}
			continue
		}
		err := r.applyBoth(ctx, jobs, edits, done)
		switch {
		case err == nil, ctx.Err() != nil:
		case isGone(err):
			r.setUpAgain(ctx)
		default:
			r.log.Error("cannot apply the added jobs to the registry, will retry", "error", err)
			select {
			case <-r.added.notify: // a new job must not wait for one that the registry refuses
				retry.Reset()
			case <-time.After(retry.NextBackOff()):
			case <-ctx.Done():
			}
		}
	}
}

// applyBoth applies the jobs, and the edits with force, and calls done with those that are in the registry.
// Each edit is applied by itself: one that is written must not be written again because another one fails,
// since it would then revert a later edit.
func (r *Replica) applyBoth(ctx context.Context, jobs, edits []job.Job, done func(...job.Job)) error {
	var failed []error
	apply := func(jobs []job.Job, force bool) {
		if err := r.apply(ctx, jobs, force); err != nil {
			failed = append(failed, err)
			return
		}
		done(jobs...)
	}
	if len(jobs) > 0 {
		apply(jobs, false)
	}
	for _, j := range edits {
		apply([]job.Job{j}, true)
	}
	return errors.Join(failed...)
}
