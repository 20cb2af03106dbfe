package serve

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/job"
)

func someJobs(n int) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i].Name = fmt.Sprintf("job-%04d", i)
	}
	return jobs
}

// Building the list of names again for each job takes a minute of CPU for a large file.
func TestReloadLooksAtEachJobOnce(t *testing.T) {
	jobs := someJobs(4000)
	a := &base.App{Log: slog.New(slog.DiscardHandler)}
	if n := testing.AllocsPerRun(1, func() { warnOfDropped(a, jobs, jobs) }); n > float64(len(jobs)) {
		t.Errorf("%v allocations for %d jobs", n, len(jobs))
	}
}

func TestReloadNamesDroppedJobsAsFarAsAScreenGoes(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	a := &base.App{Log: slog.New(slog.NewTextHandler(&log, nil))}
	warnOfDropped(a, someJobs(100), someJobs(98))
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "job-0098") || !strings.Contains(log.String(), "job-0099") {
		t.Errorf("want two names, got\n%s", log.String())
	}
	log.Reset()
	warnOfDropped(a, someJobs(100), nil)
	if n := strings.Count(log.String(), "\n"); n != base.MostNamed+1 || !strings.Contains(log.String(), "count=90") {
		t.Errorf("want %d names and a count, got %d lines", base.MostNamed, n)
	}
}
