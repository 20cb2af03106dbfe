package cronce

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cronce-io/cronce/job"
)

// Handle adds a job and the handler of its slots. Run writes the job to the registry, unless the
// registry has an equal one, one of an operator, or a later edit of this one. All replicas should
// add the same jobs.
//
// Handle may be called after Run has begun, even from a handler. It does not wait for the broker: Run
// writes the job within moments, or as soon as the broker answers, and begins to work on the job's
// queue unless WithQueues leaves it out. A job that is new to the registry has slots from then on.
// If Remove has removed another definition of the job since Run began, and the registry still has that
// one, this one is an edit: Run also writes it if it is one that was replaced earlier.
//
// The error wraps job.ErrInvalid if the job is invalid, if it has a handler here already, or if Run
// has returned. To replace a handler, call Remove first.
func (s *Scheduler) Handle(j job.Job, h job.Handler) error {
	if err := j.Validate(); err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("%w: job %s: its handler is nil", job.ErrInvalid, j.Name)
	}
	h, err := s.wrap(j.Name, h)
	if err != nil {
		return err
	}
	j = j.WithDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return fmt.Errorf("%w: job %s: Handle was called after the end of Run", job.ErrInvalid, j.Name)
	}
	if !s.handled.add(j, h) {
		return fmt.Errorf("%w: job %s has a handler already", job.ErrInvalid, j.Name)
	}
	if s.replica != nil {
		s.replica.SetQueues(s.queues())
		s.replica.Add(j)
	}
	return nil
}

// HandleFunc adds a job whose payload is a T: see Handle, and job.Typed for how the payload is
// decoded. A payload that cannot be decoded fails the slot for good, with an error that names the
// JSON member. If there is no payload, f gets the zero value of T.
func HandleFunc[T any](s *Scheduler, j job.Job, f func(ctx context.Context, run job.Run, payload T) error) error {
	return s.Handle(j, job.Typed(f))
}

// Remove removes a job and its handler from this replica. It may be called after Run has begun,
// even from a handler, and does not block. Slots of the job that run here finish. No further
// slot of the job starts here, unless Handle adds the job again. If no other job here is in its
// queue, and WithQueues does not name the queue, this replica takes no more of its slots.
//
// The registry keeps the job, since other replicas may run it: its slots are published and wait
// for these replicas, up to the horizon. To end a job for the whole fleet, remove it on all
// replicas and then from the registry: see client.Client.Remove, or cronce job rm.
//
// The error wraps job.ErrNotFound if the job has no handler here.
func (s *Scheduler) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.handled.remove(name) {
		return fmt.Errorf("remove job %q: it has no handler here: %w", name, job.ErrNotFound)
	}
	if s.replica != nil {
		s.replica.Drop(name)
		s.replica.SetQueues(s.queues())
	}
	return nil
}

// wrap returns the handler inside the middleware.
func (s *Scheduler) wrap(name string, h job.Handler) (job.Handler, error) {
	for i, m := range slices.Backward(s.cfg.middleware) {
		if h = m(h); h == nil {
			return nil, fmt.Errorf("%w: job %s: middleware number %d returned no handler", job.ErrInvalid, name, i)
		}
	}
	return h, nil
}

// queues returns the queues to work on: those of WithQueues, or those of the jobs if there are
// none.
func (s *Scheduler) queues() []string {
	switch {
	case !s.cfg.work:
		return nil
	case len(s.cfg.queues) > 0:
		return s.cfg.queues
	}
	return s.handled.queues()
}

// handled holds the jobs of a Scheduler and their handlers. Its zero value is empty. It is safe for
// concurrent use.
type handled struct {
	mu      sync.RWMutex
	byName  map[string]handledJob
	inQueue map[string]int // number of jobs, by queue
	added   int
}

type handledJob struct {
	job     job.Job
	handler job.Handler
	number  int // how many jobs Handle had added before
}

// add adds a job. It returns false if there is one of that name.
func (h *handled) add(j job.Job, handler job.Handler) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.byName[j.Name]; there {
		return false
	}
	if h.byName == nil {
		h.byName, h.inQueue = map[string]handledJob{}, map[string]int{}
	}
	h.byName[j.Name] = handledJob{j, handler, h.added}
	h.added++
	h.inQueue[j.Queue]++
	return true
}

// remove removes a job. It returns false if there is none of that name.
func (h *handled) remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, there := h.byName[name]
	if !there {
		return false
	}
	delete(h.byName, name)
	if h.inQueue[one.job.Queue]--; h.inQueue[one.job.Queue] == 0 {
		delete(h.inQueue, one.job.Queue)
	}
	return true
}

// handler returns the handler of a job, or nil.
func (h *handled) handler(name string) job.Handler {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byName[name].handler
}

// jobs returns the jobs in the order of Handle.
func (h *handled) jobs() (jobs []job.Job) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := slices.SortedFunc(maps.Values(h.byName), func(x, y handledJob) int { return x.number - y.number })
	for _, one := range all {
		jobs = append(jobs, one.job)
	}
	return jobs
}

func (h *handled) names() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Sorted(maps.Keys(h.byName))
}

func (h *handled) queues() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Sorted(maps.Keys(h.inQueue))
}

// inside gives package croncetest access to a Scheduler. It implements inject.Inside.
type inside struct{ s *Scheduler }

func (i inside) Jobs() []job.Job { return i.s.handled.jobs() }

func (i inside) Joined(ctx context.Context) error {
	if r := i.s.current(); r != nil {
		return r.Joined(ctx, i.s.handled.names()...)
	}
	return nil
}
