package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

// movedJobs finds the jobs that were moved to another queue, and whose slots wait in the old one, which
// has no live worker any more. No worker would take these slots, and they may hold their job's lock. So
// the sweep offers them in the job's present queue.
type movedJobs struct {
	registry Registry
	at       time.Time // of the last pass that looked for moved jobs

	// served has the queues with a live worker. Nil: this pass does not look for moved jobs.
	served map[string]bool

	// asked has the jobs that earlier passes of this round have asked for. A pass with room left ends the
	// round.
	asked map[string]bool

	mu     sync.Mutex
	queues map[string]string // by job that this pass has asked for, its present queue; "": it could not be read
}

// begin begins a pass.
func (m *movedJobs) begin(now time.Time, live []exchange.NodeEvent) {
	m.served = nil
	if now.Sub(m.at).Abs() < movedEvery {
		return
	}
	m.at, m.served = now, servedQueues(live)
	if len(m.queues) < maxMoved {
		m.asked = map[string]bool{}
	} else {
		for name := range m.queues {
			m.asked[name] = true
		}
	}
	m.queues = map[string]string{}
}

// movedEvery is how often the sweep looks for moved jobs. It is long, because a queue may have no worker
// for another reason: then the sweep lists all messages of the queue, reads the definitions of their jobs,
// and finds no job that was moved. maxMoved bounds these reads: the passes of a round ask for all jobs in
// turn, because messages of ended slots, and of jobs that were removed, stay in such a queue.
const (
	movedEvery = 5 * time.Minute
	maxMoved   = 1000
)

// servedQueues returns the queues that have one of these live nodes as a worker. It returns nil if there
// are none, or if the record of a node cannot be read.
func servedQueues(live []exchange.NodeEvent) map[string]bool {
	served := map[string]bool{}
	for _, n := range live {
		if n.Err != nil {
			return nil
		}
		for _, queue := range n.Node.Queues {
			if n.Node.Worker {
				served[queue] = true
			}
		}
	}
	if len(served) == 0 {
		return nil
	}
	return served
}

// queue returns the present queue of a job if that queue has a live worker and the given one has none.
// Otherwise it returns "".
func (m *movedJobs) queue(ctx context.Context, job, queue string) string {
	if m.served == nil || m.served[queue] {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	present, read := m.queues[job]
	if !read {
		if m.asked[job] || len(m.queues) == maxMoved {
			return ""
		}
		if e, _, err := m.registry.Read(ctx, job); err == nil {
			present = e.Job.WithDefaults().Queue
		}
		m.queues[job] = present
	}
	if !m.served[present] {
		return ""
	}
	return present
}
