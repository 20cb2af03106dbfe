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
	l := newAddedJobs()
	edits := func(replaced ...job.Job) (done func()) {
		t.Helper()
		jobs, edits, written := l.get()
		var got, want []string
		for _, e := range edits {
			jobs, got = append(jobs, e.job), append(got, e.replaces...)
		}
		for _, j := range replaced {
			want = append(want, hashOf(j))
		}
		if !slices.Equal(got, want) || len(jobs) != 1 {
			t.Errorf("%d jobs replace %v, want one that replaces %v", len(jobs), got, want)
		}
		return func() { written(jobs...) }
	}
	l.add(hourly)
	edits()()
	l.drop(hourly, true)
	l.add(hourly)
	edits()()
	l.drop(hourly, true)
	l.add(daily)
	edits(hourly)
	l.drop(daily, true)
	l.add(daily) // the registry has not taken it yet
	edits(hourly)
	l.drop(daily, true)
	l.add(weekly)
	edits(hourly, daily)()
	l.drop(weekly, true)
	l.add(weekly)
	edits()
}

// The registry has only what Run has applied.
func TestAddedJobIsNoEditOfOneThatWasRemovedBeforeRun(t *testing.T) {
	t.Parallel()
	r := &Replica{added: newAddedJobs(), jobs: []job.Job{{Name: "sync", Schedule: "@hourly"}}}
	r.Drop("sync")
	r.Add(job.Job{Name: "sync", Schedule: "@daily"})
	r.Drop("sync")
	r.Add(job.Job{Name: "sync", Schedule: "@weekly"})
	if jobs, edits, _ := r.added.get(); len(jobs) != 1 || len(edits) != 0 {
		t.Errorf("%d jobs and %d edits, want one job", len(jobs), len(edits))
	}
}

// A program may run for months and add jobs with ever new names.
func TestDroppedJobsAreForgottenOldestFirst(t *testing.T) {
	t.Parallel()
	l := newAddedJobs()
	const n = 5 * maxDropped / 2
	name := func(i int) job.Job { return job.Job{Name: fmt.Sprint("sync-", i), Schedule: "@hourly"} }
	for i := range n {
		l.drop(name(i), true)
	}
	if kept := len(l.dropped[0]) + len(l.dropped[1]); kept > 2*maxDropped {
		t.Errorf("%d dropped jobs are remembered, want at most %d", kept, 2*maxDropped)
	}
	for _, i := range []int{n - 1, n - maxDropped} {
		daily := name(i)
		daily.Schedule = "@daily"
		l.add(daily)
	}
	if _, edits, _ := l.get(); len(edits) != 2 {
		t.Errorf("%d of the newest dropped jobs are remembered, want both", len(edits))
	}
}

func TestAddedJobIsInTheRegistryWhenItIsDone(t *testing.T) {
	t.Parallel()
	store := kvtest.Open(t, natstest.Run(t).JetStream(), kv.Options{})
	r := New(Config{Store: store, Owner: plans.OwnerCode})
	r.Add(job.Job{Name: "sync", Schedule: "@hourly"})
	jobs, edits, _ := r.added.get()
	var written []job.Job
	if err := r.applyBoth(t.Context(), r.applied.begin(), jobs, edits, func(jobs ...job.Job) { written = append(written, jobs...) }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Jobs().Read(t.Context(), "sync"); err != nil || len(written) != 1 {
		t.Errorf("%d jobs are done, and the registry has it: %v", len(written), err)
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
	var written []string
	err := r.applyBoth(t.Context(), r.applied.begin(), []job.Job{large, {Name: "sync", Schedule: "@hourly"}}, nil, func(jobs ...job.Job) {
		for _, j := range jobs {
			written = append(written, j.Name)
		}
	})
	if err == nil || !slices.Equal(written, []string{"sync"}) {
		t.Errorf("%v are done, and the error is %v; want only sync done, and an error about the large job", written, err)
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
