package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func TestAddedJobIsAnEditUntilTheRegistryHasIt(t *testing.T) {
	t.Parallel()
	hourly, daily, weekly := job.Job{Name: "sync", Schedule: "@hourly"}, job.Job{Name: "sync", Schedule: "@daily"}, job.Job{Name: "sync", Schedule: "@weekly"}
	l := newOwnJobs(nil)
	edits := func(replaced ...job.Job) (done func()) {
		t.Helper()
		var got, want []string
		jobs := l.list(ownJob.waits)
		for _, j := range jobs {
			got = append(got, j.replaces...)
		}
		for _, j := range replaced {
			want = append(want, hashOf(j))
		}
		if !slices.Equal(got, want) || len(jobs) != 1 {
			t.Errorf("%d jobs replace %v, want one that replaces %v", len(jobs), got, want)
		}
		return func() {
			for _, j := range jobs {
				l.noteApplied(j, j.Job, 1)
			}
		}
	}
	l.add(hourly)
	edits()()
	l.drop("sync")
	l.add(hourly)
	edits()()
	l.drop("sync")
	l.add(daily)
	edits(hourly)
	l.drop("sync")
	l.add(daily) // the registry has not taken it yet
	edits(hourly)
	l.drop("sync")
	l.add(weekly)
	edits(hourly, daily)()
	l.drop("sync")
	l.add(weekly)
	edits()
}

// The registry has only what Run has applied.
func TestAddedJobIsNoEditOfOneThatWasRemovedBeforeRun(t *testing.T) {
	t.Parallel()
	r := &Replica{own: newOwnJobs([]job.Job{{Name: "sync", Schedule: "@hourly"}})}
	r.Drop("sync")
	r.Add(job.Job{Name: "sync", Schedule: "@daily"})
	r.Drop("sync")
	r.Add(job.Job{Name: "sync", Schedule: "@weekly"})
	if jobs := r.own.list(ownJob.waits); len(jobs) != 1 || len(jobs[0].replaces) > 0 {
		t.Errorf("%+v wait, want one job that is no edit", jobs)
	}
}

// A program may run for months and add jobs with ever new names.
func TestDroppedJobsAreForgottenOldestFirst(t *testing.T) {
	t.Parallel()
	l := newOwnJobs(nil)
	l.list(ownJob.waits)
	const n = 5 * maxDropped / 2
	name := func(i int) job.Job { return job.Job{Name: fmt.Sprint("sync-", i), Schedule: "@hourly"} }
	for i := range n {
		l.add(name(i))
		l.drop(name(i).Name)
	}
	if kept := len(l.dropped[0]) + len(l.dropped[1]); kept > 2*maxDropped {
		t.Errorf("%d dropped jobs are remembered, want at most %d", kept, 2*maxDropped)
	}
	for _, i := range []int{n - 1, n - maxDropped} {
		daily := name(i)
		daily.Schedule = "@daily"
		l.add(daily)
	}
	if edits := l.list(func(j ownJob) bool { return len(j.replaces) > 0 }); len(edits) != 2 {
		t.Errorf("%d of the newest dropped jobs are remembered, want both", len(edits))
	}
}

func TestAddedJobIsInTheRegistryWhenItIsDone(t *testing.T) {
	t.Parallel()
	store := kvtest.Open(t, natstest.Run(t).JetStream(), kv.Options{})
	r := New(Config{Store: store, Owner: plans.OwnerCode})
	r.Add(job.Job{Name: "sync", Schedule: "@hourly"})
	if err := r.applyWaiting(t.Context(), r.own.list(ownJob.waits)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Jobs().Read(t.Context(), "sync"); err != nil || len(r.own.list(ownJob.waits)) > 0 {
		t.Errorf("%d jobs wait, and the registry has it: %v", len(r.own.list(ownJob.waits)), err)
	}
}

// large is a job that the registry of smallStore refuses.
var large = job.Job{Name: "large", Schedule: "@hourly", Payload: []byte(`"` + strings.Repeat("x", 80<<10) + `"`)}

func smallStore(t *testing.T) *kv.Store {
	t.Helper()
	srv := natstest.Run(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	store := kvtest.Open(t, srv.JetStream(), kv.Options{})
	return store
}

func TestAddedJobDoesNotWaitForOneThatTheRegistryRefuses(t *testing.T) {
	t.Parallel()
	store := smallStore(t)
	r := New(Config{Store: store, Owner: plans.OwnerCode})
	r.Add(large)
	r.Add(job.Job{Name: "sync", Schedule: "@hourly"})
	err := r.applyWaiting(t.Context(), r.own.list(ownJob.waits))
	if waiting := r.own.list(ownJob.waits); err == nil || len(waiting) != 1 || waiting[0].Name != "large" {
		t.Errorf("%d jobs wait, and the error is %v; want only the large job to wait, and an error about it", len(waiting), err)
	}
	if _, _, err := store.Jobs().Read(t.Context(), "sync"); err != nil {
		t.Error(err)
	}
}

// Run would end otherwise if such a job is added while it begins, and go on if it is added a moment later.
func TestReplicaStartsAlthoughTheRegistryRefusesAnAddedJob(t *testing.T) {
	t.Parallel()
	store := smallStore(t)
	r := New(Config{Store: store, Owner: plans.OwnerCode, Jobs: []job.Job{{Name: "sync", Schedule: "@hourly"}}})
	r.Add(large)
	if err := r.applyOwn(t.Context()); err != nil {
		t.Errorf("apply the jobs at the start: %v", err)
	}
	if _, _, err := store.Jobs().Read(t.Context(), "sync"); err != nil {
		t.Errorf("the registry has no other job: %v", err)
	}
}
