package serve

import (
	"context"
	"os"
	"slices"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
)

// reloadOn calls reload at each SIGHUP, until stop is called. An invalid file changes nothing.
func reloadOn(ctx context.Context, a *base.App, hangups <-chan os.Signal, reload func() error, file string) (stop func()) {
	return background(ctx, func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			if file == "" {
				a.Log.Info("SIGHUP ignored: there is no file to read")
				continue
			}
			if err := reload(); err != nil && ctx.Err() == nil {
				a.Log.Error("reload failed; keeping the previous file", "file", file, "error", err)
			}
		}
	})
}

// reload reads the file again and replaces the jobs and their handlers.
func reload(ctx context.Context, a *base.App, f runFlags, jobs *handlers, r *replica.Replica) error {
	fresh, err := loadJobs(ctx, a, f)
	if err != nil {
		return err
	}
	warnOfDropped(a, jobs.jobs(), fresh.jobs())
	queues := fresh.queues(f)
	set, err := jobs.build(fresh.entries, queues)
	if err != nil {
		return err
	}
	// Write the registry first: if that fails, the handlers and the queues stay as they are.
	if err := r.Apply(ctx, fresh.jobs(), true); err != nil {
		return err
	}
	set()
	r.SetQueues(queues)
	a.Log.Info("file reloaded", "file", f.file, "jobs", len(jobs.jobs()), "queues", queues)
	jobs.warnOfShadows(a)
	return nil
}

// warnOfDropped logs the jobs that were in the file before and are not now.
func warnOfDropped(a *base.App, before, now []job.Job) {
	kept := make(map[string]bool, len(now))
	for _, j := range now {
		kept[j.Name] = true
	}
	var dropped []string
	for _, j := range before {
		if !kept[j.Name] {
			dropped = append(dropped, j.Name)
		}
	}
	slices.Sort(dropped)
	for i, name := range dropped {
		if i == base.MostNamed {
			a.Log.Warn("more jobs left the file", "count", len(dropped)-i)
			return
		}
		a.Log.Warn("job left the file; it stays in the registry until you remove it", "job", name, "remove", "cronce job rm "+name)
	}
}
