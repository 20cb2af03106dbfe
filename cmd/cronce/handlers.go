package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/internal/config"
	"github.com/cronce-io/cronce/internal/execaction"
	"github.com/cronce-io/cronce/internal/guard"
	"github.com/cronce-io/cronce/job"
)

type natsConn = *nats.Conn

// handlers are the jobs of the file that was read last, with what this process
// does for them. It is safe for concurrent use: the file may be read again.
type handlers struct {
	guard *guard.Guard

	mu      sync.Mutex
	entries []config.Entry
	byName  map[string]job.Handler
}

// loadJobs reads the file, if there is one.
func (a *app) loadJobs(f runFlags) (*handlers, error) {
	if f.file == "" {
		return &handlers{}, nil
	}
	file, err := a.readJobFile(f.file)
	if err != nil {
		return nil, err
	}
	return &handlers{entries: file.Jobs}, nil
}

// guardWith makes the handlers; their commands run under g.
func (h *handlers) guardWith(g *guard.Guard) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guard = g
	return h.build(h.entries)
}

func (h *handlers) build(entries []config.Entry) error {
	byName := map[string]job.Handler{}
	for _, e := range entries {
		handler, err := execaction.New(e.Action.Exec, h.guard)
		if err != nil {
			return fmt.Errorf("job %s: %w", e.Job.Name, err)
		}
		byName[e.Job.Name] = handler
	}
	h.entries, h.byName = entries, byName
	return nil
}

// replace takes over what another read of the file gave. Attempts that run go on
// with what they began with.
func (h *handlers) replace(fresh *handlers) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.build(fresh.entries)
}

func (h *handlers) handler(name string) job.Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byName[name]
}

func (h *handlers) jobs() []job.Job {
	h.mu.Lock()
	defer h.mu.Unlock()
	var jobs []job.Job
	for _, e := range h.entries {
		jobs = append(jobs, e.Job.WithDefaults())
	}
	return jobs
}

func (h *handlers) names() []string {
	var names []string
	for _, j := range h.jobs() {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	return names
}

// queues are those to work on: the ones asked for, else every one of the file.
func (h *handlers) queues(f runFlags) []string {
	if f.noWork {
		return nil
	}
	if len(f.queues) > 0 {
		return f.queues
	}
	return h.allQueues()
}

// allQueues are the queues of the file.
func (h *handlers) allQueues() []string {
	var queues []string
	for _, j := range h.jobs() {
		if !slices.Contains(queues, j.Queue) {
			queues = append(queues, j.Queue)
		}
	}
	slices.Sort(queues)
	return queues
}
