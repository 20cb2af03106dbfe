package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// maxAddedRetry bounds the pause before a job that could not be applied to the registry is tried
// again.
const maxAddedRetry = 30 * time.Second

// maxDropped bounds the dropped jobs that addedJobs remembers: at least the newest maxDropped, and at
// most twice as many. A program may add and drop jobs with new names for as long as it runs.
const maxDropped = 10_000

// maxReplaced bounds the definitions that one added job may replace.
const maxReplaced = 50

// addedJobs are the jobs that Add has added and that are not in the registry yet. It is safe for
// concurrent use.
type addedJobs struct {
	notify chan struct{}

	mu      sync.Mutex
	serial  int
	byName  map[string]addedJob
	dropped [2]map[string][]string // hashes of the definitions that Drop has removed: the newer jobs, and the older ones
}

// addedJob is a job with the serial number of its call of Add.
type addedJob struct {
	job job.Job

	// replaces are the hashes of the other definitions of the job that this process had before. If the
	// registry has one of them, the job is an edit of it.
	replaces []string

	serial int
}

func newAddedJobs() *addedJobs {
	return &addedJobs{notify: make(chan struct{}, 1), byName: map[string]addedJob{}, dropped: [2]map[string][]string{{}, {}}}
}

// hashOf returns the hash of a job that was validated. Its JSON is that of the registry.
func hashOf(j job.Job) string {
	hash, _ := j.WithDefaults().Hash()
	return hash
}

func (l *addedJobs) add(j job.Job) {
	l.mu.Lock()
	l.serial++
	a := addedJob{job: j, serial: l.serial}
	for _, dropped := range l.dropped {
		a.replaces = append(a.replaces, dropped[j.Name]...)
		delete(dropped, j.Name)
	}
	hash := hashOf(j)
	a.replaces = slices.DeleteFunc(a.replaces, func(h string) bool { return h == hash })
	l.byName[j.Name] = a
	l.mu.Unlock()
	core.TrySend(l.notify, struct{}{})
}

// drop notes that a job was removed. Unless the replica is applying its jobs already, the registry cannot
// have the job from this process, and a job of that name that is added later is no edit of it.
func (l *addedJobs) drop(j job.Job, applying bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	replaces := l.byName[j.Name].replaces
	delete(l.byName, j.Name)
	if !applying {
		return
	}
	if len(l.dropped[0]) == maxDropped {
		l.dropped = [2]map[string][]string{{}, l.dropped[0]}
	}
	l.dropped[0][j.Name] = codec.Last(append(replaces, hashOf(j)), maxReplaced)
}

// waits reports whether a job of this name is not in the registry yet.
func (l *addedJobs) waits(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, waits := l.byName[name]
	return waits
}

// get returns the jobs, and apart from them those that are edits. Call done with those that are in the
// registry.
func (l *addedJobs) get() (jobs []job.Job, edits []addedJob, done func(...job.Job)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	upTo := l.serial
	for _, a := range l.byName {
		if len(a.replaces) > 0 {
			edits = append(edits, a)
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
// If Drop has removed another definition of the job, and the registry still has that one, the program
// wants the change: Run applies the job with force. If the registry has a third definition, a later edit
// has replaced the dropped one, and a program in a crash loop must not revert that edit.
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
		r.added.drop(r.jobs[i], r.applying)
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
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, maxAddedRetry
	for ctx.Err() == nil {
		any, err := r.applyWaiting(ctx)
		switch {
		case !any:
			retry.Reset()
			select {
			case <-r.added.notify:
			case <-ctx.Done():
			}
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

// applyWaiting applies the jobs that wait, and reports whether there were any.
func (r *Replica) applyWaiting(ctx context.Context) (any bool, err error) {
	run := r.applied.begin()
	defer r.applied.end(run)
	jobs, edits, done := r.added.get()
	return len(jobs)+len(edits) > 0, r.applyBoth(ctx, run, jobs, edits, done)
}

// applyBoth applies the jobs and the edits, and calls done with those that are in the registry. If the
// jobs together fail, it applies each by itself, so that none waits for one that the registry refuses. Each
// edit is applied by itself from the first: one that is written must not be written again because another
// one fails, since it would then revert a later edit.
func (r *Replica) applyBoth(ctx context.Context, run *applyRun, jobs []job.Job, edits []addedJob, done func(...job.Job)) error {
	apply := func(replaces []string, jobs ...job.Job) error {
		err := (&applying{Replica: r, applyRun: run, replaces: replaces}).run(ctx, jobs)
		if err == nil {
			done(jobs...)
		}
		return err
	}
	var failed []error
	if len(jobs) < 2 || apply(nil, jobs...) != nil {
		for _, j := range jobs {
			failed = append(failed, apply(nil, j))
		}
	}
	for _, e := range edits {
		failed = append(failed, apply(e.replaces, e.job))
	}
	return errors.Join(failed...)
}
