package serve

import (
	"context"
	"os"
	"slices"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
)

// reloadOn reads the file again at each SIGHUP, until the returned function is
// called. A file that is wrong changes nothing.
func reloadOn(ctx context.Context, a *base.App, hangups <-chan os.Signal, f runFlags, jobs *handlers, r *replica.Replica) (stop func()) {
	return background(ctx, func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			if f.file == "" {
				a.Log.Info("nothing to read again: there is no file")
				continue
			}
			if err := reload(ctx, a, f, jobs, r); err != nil && ctx.Err() == nil {
				a.Log.Error("the file was not taken over; going on with what was read before", "file", f.file, "error", err)
			}
		}
	})
}

func reload(ctx context.Context, a *base.App, f runFlags, jobs *handlers, r *replica.Replica) error {
	fresh, err := loadJobs(ctx, a, f)
	if err != nil {
		return err
	}
	warnOfDropped(a, jobs.jobs(), fresh.jobs())
	if before, now := jobs.queues(f), fresh.queues(f); !slices.Equal(before, now) {
		a.Log.Warn("the file's queues have changed; a restart is needed to work on other queues", "working on", before, "in the file", now)
	}
	set, err := jobs.build(fresh.entries)
	if err != nil {
		return err
	}
	// The registry first: if it cannot be written, nothing has changed.
	if err := r.Apply(ctx, fresh.jobs(), true); err != nil {
		return err
	}
	set()
	a.Log.Info("file read again", "file", f.file, "jobs", len(jobs.jobs()))
	return nil
}

// warnOfDropped names the jobs that were in the file and are not any more.
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
			a.Log.Warn("more jobs are not in the file any more", "count", len(dropped)-i)
			return
		}
		a.Log.Warn("job is not in the file any more; it stays in the registry until it is removed", "job", name, "remove", "cronce job rm "+name)
	}
}
