package replica

import (
	"testing"

	"github.com/cronce-io/cronce/job"
)

func TestAddedJobIsAnEditUntilTheRegistryHasIt(t *testing.T) {
	t.Parallel()
	hourly, daily := job.Job{Name: "sync", Schedule: "@hourly"}, job.Job{Name: "sync", Schedule: "@daily"}
	l := newAddedJobs()
	edits := func(want int) (done func()) {
		t.Helper()
		jobs, edits, written := l.get()
		if len(edits) != want || len(jobs) != 1-want {
			t.Errorf("%d edits and %d other jobs, want %d edits", len(edits), len(jobs), want)
		}
		return func() { written(append(jobs, edits...)...) }
	}
	l.add(hourly)
	edits(0)()
	l.drop(hourly)
	l.add(hourly)
	edits(0)()
	l.drop(hourly)
	l.add(daily)
	edits(1)
	l.drop(daily)
	l.add(daily) // the registry has not taken it yet
	edits(1)()
	l.drop(daily)
	l.add(daily)
	edits(0)
}
