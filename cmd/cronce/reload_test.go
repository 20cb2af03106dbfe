package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

func someJobs(n int) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i].Name = fmt.Sprintf("job-%04d", i)
	}
	return jobs
}

// To make the list of names anew for each job was a minute of CPU for a large file.
func TestReloadLooksAtEachJobOnce(t *testing.T) {
	jobs := someJobs(4000)
	a := &app{log: slog.New(slog.DiscardHandler)}
	if n := testing.AllocsPerRun(1, func() { a.warnOfDropped(jobs, jobs) }); n > float64(len(jobs)) {
		t.Errorf("%v allocations for %d jobs", n, len(jobs))
	}
}

func TestReloadNamesDroppedJobsAsFarAsAScreenGoes(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	a := &app{log: slog.New(slog.NewTextHandler(&log, nil))}
	a.warnOfDropped(someJobs(100), someJobs(98))
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "job-0098") || !strings.Contains(log.String(), "job-0099") {
		t.Errorf("want two names, got\n%s", log.String())
	}
	log.Reset()
	a.warnOfDropped(someJobs(100), nil)
	if n := strings.Count(log.String(), "\n"); n != mostNamed+1 || !strings.Contains(log.String(), "count=90") {
		t.Errorf("want %d names and a count, got %d lines", mostNamed, n)
	}
}

// Parsing a large file takes seconds, and standard input may never end.
func TestReadingAJobFileEndsWithItsContext(t *testing.T) {
	t.Parallel()
	never, hold := io.Pipe()
	defer hold.Close()
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{stdin: never, stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, now: time.Now}
	ended := make(chan int, 1)
	go func() { ended <- a.execute(ctx, []string{"check", "-"}) }()
	cancel()
	select {
	case status := <-ended:
		if status != exitFailed {
			t.Errorf("status %d, want %d", status, exitFailed)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("check still waits for its standard input")
	}
}
