package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/action/execaction"
	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/action/httpaction"
	"github.com/cronce-io/cronce/internal/action/natsaction"
	"github.com/cronce-io/cronce/internal/action/ready"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// shared holds what the handlers of all jobs share.
type shared struct {
	guard     *guard.Guard
	transport *http.Transport
	fresh     *http.Transport // never reuses a connection: for jobs with one attempt, which cannot repeat a request
	conn      *nats.Conn
	getenv    func(string) string
}

func (s shared) handler(e spec.Entry) (job.Handler, error) {
	a := e.Action
	switch {
	case e.Shadow:
		return shadow, nil
	case a.HTTP != nil && e.Job.Retry.Attempts == 1:
		return httpaction.New(*a.HTTP, s.fresh, s.getenv)
	case a.HTTP != nil:
		return httpaction.New(*a.HTTP, s.transport, s.getenv)
	case a.NATS != nil:
		return natsaction.New(*a.NATS, s.conn), nil
	case a.Exec != nil:
		return execaction.New(*a.Exec, s.guard, s.getenv)
	}
	return nil, errNoHandler
}

// shadow is the handler of every job with shadow: true. It does not check that the action could run,
// for example that its user exists, because the action does not run.
func shadow(context.Context, job.Run) error { return job.ErrShadow }

// errNoHandler means that a kind of action has no handler. A test checks that every kind has one.
var errNoHandler = errors.New("no handler for this kind of action")

// handlers holds the jobs of the last file read and their handlers. It is safe for
// concurrent use, because the file may be reloaded.
type handlers struct {
	shared   shared
	services *ready.Services

	mu      sync.Mutex
	entries []spec.Entry
	byName  map[string]job.Handler
}

// loadJobs reads the file, if there is one.
func loadJobs(ctx context.Context, a *base.App, f runFlags) (*handlers, error) {
	if f.file == "" {
		return &handlers{}, nil
	}
	file, err := a.ReadJobFile(ctx, f.file)
	if err != nil {
		return nil, err
	}
	return &handlers{entries: file.Jobs}, nil
}

// equip makes the handlers of the file that was read first, for a process that works on these queues.
func (h *handlers) equip(s shared, services *ready.Services, working []string) error {
	h.shared, h.services = s, services
	set, err := h.build(h.entries, working)
	if err == nil {
		set()
	}
	return err
}

// build makes the handlers of entries for a process that works on these queues. set installs them.
// Running attempts keep the handler that they began with. A job of another queue has no handler if
// this process does not have what its action needs: the workers of that queue have it.
func (h *handlers) build(entries []spec.Entry, working []string) (set func(), err error) {
	byName := map[string]job.Handler{}
	var needs []ready.Need
	for _, e := range entries {
		queue, call := e.Job.WithDefaults().Queue, e.Action.HTTP
		works := slices.Contains(working, queue)
		handler, err := h.shared.handler(e)
		switch {
		case err == nil:
			byName[e.Job.Name] = handler
		case works:
			return nil, fmt.Errorf("job %s: %w", e.Job.Name, err)
		}
		if e.Shadow || !works {
			continue
		}
		if e.Action.Exec != nil {
			if err := execaction.Check(*e.Action.Exec); err != nil {
				return nil, fmt.Errorf("job %s: %w", e.Job.Name, err)
			}
		}
		if call != nil && call.Ready != nil {
			needs = append(needs, ready.Need{Queue: queue, URL: call.Ready, Shown: httpaction.Show(call.Ready)})
		}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.entries, h.byName = entries, byName
		h.services.Set(needs)
	}, nil
}

// runsPrograms reports whether a job of the file runs an exec action.
func (h *handlers) runsPrograms() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.entries, func(e spec.Entry) bool { return e.Action.Exec != nil && !e.Shadow })
}

func (h *handlers) handler(name string) job.Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byName[name]
}

func (h *handlers) jobs() []job.Job {
	h.mu.Lock()
	defer h.mu.Unlock()
	return codec.Map(h.entries, func(e spec.Entry) job.Job { return e.Job.WithDefaults() })
}

// warnOfShadows logs the jobs whose actions do not run.
func (h *handlers) warnOfShadows(a *base.App) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for _, e := range h.entries {
		if e.Shadow {
			names = append(names, e.Job.Name)
		}
	}
	if len(names) > 0 {
		a.Log.Warn("shadow jobs: their slots are recorded, and their actions do not run", "count", len(names), "jobs", names[:min(len(names), base.MostNamed)])
	}
}

// names lists the jobs that have a handler.
func (h *handlers) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.byName))
}

// queues lists the queues to work on: those of --queue, else all of the file.
func (h *handlers) queues(f runFlags) []string {
	if f.noWork {
		return nil
	}
	if len(f.queues) > 0 {
		return f.queues
	}
	return h.allQueues()
}

func (h *handlers) allQueues() []string {
	queues := codec.Map(h.jobs(), func(j job.Job) string { return j.Queue })
	slices.Sort(queues)
	return slices.Compact(queues)
}

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
	if err := checkReadable(f.file); err != nil {
		return err
	}
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

// checkReadable returns an error if the file has no content to read again. A named pipe would block
// this reload, and with it each later one, until it has a writer.
func checkReadable(file string) error {
	if file == "-" {
		return errors.New("standard input cannot be read again: restart the node, or name a file")
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file, and cannot be read again: restart the node, or name a regular file", file)
	}
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
