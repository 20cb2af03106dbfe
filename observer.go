package cronce

import (
	"time"

	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/producer"
)

// Observer receives measurements of a Scheduler. Its methods must not block, and are called from
// many goroutines at once. For Prometheus, use *metrics.Metrics. New versions may add methods: embed
// NopObserver, and write only the methods that you need.
type Observer interface {
	// Follow is called once, before any other method. stats is Scheduler.Stats.
	Follow(stats func() Stats)

	// Started is called before each handler starts. late is how long ago its slot was due. It may
	// be a little less than zero, since each node has its own estimate of the broker's clock.
	// planned is false if the slot could not start on time: for a further attempt, a slot that
	// was caught up or backfilled, a triggered run, and a run that a message of a stream started.
	Started(queue string, late time.Duration, planned bool)

	// Returned is called when a handler has returned. took is how long it ran.
	Returned(queue string, took time.Duration)

	// Waits is called when this process has put a slot into its job's line, because other slots of the
	// job must end before (see job.Overlap).
	Waits(queue string)

	// Event is called for every event that the Scheduler publishes, except the alerts that jobs ask
	// for, such as OnFailure, and the orders of its Client: see job.EventKind.
	Event(job.Event)

	// Ledger is called after each read and each write of a slot's record by a worker: request is
	// "read" or "write". took is the time until the answer, and failed is the error of a request
	// that failed. A conflict and a missing record are answers, not failures.
	Ledger(request string, took time.Duration, failed error)

	// HeartbeatFailed is called for each heartbeat that was refused or not answered.
	HeartbeatFailed()

	// LeaseLost is called when the node has lost its lease. The Scheduler then goes on as a node
	// with a new name.
	LeaseLost()

	// Offered is called for each slot whose message was lost and that this Scheduler published
	// again. The oldest producer of the fleet looks for such slots twice a minute.
	Offered()
}

// NopObserver is an Observer that ignores everything, to embed in your own.
type NopObserver struct{}

// Follow implements Observer.
func (NopObserver) Follow(func() Stats) {}

// Started implements Observer.
func (NopObserver) Started(string, time.Duration, bool) {}

// Returned implements Observer.
func (NopObserver) Returned(string, time.Duration) {}

// Waits implements Observer.
func (NopObserver) Waits(string) {}

// Event implements Observer.
func (NopObserver) Event(job.Event) {}

// Ledger implements Observer.
func (NopObserver) Ledger(string, time.Duration, error) {}

// HeartbeatFailed implements Observer.
func (NopObserver) HeartbeatFailed() {}

// LeaseLost implements Observer.
func (NopObserver) LeaseLost() {}

// Offered implements Observer.
func (NopObserver) Offered() {}

// Stats is the state of a Scheduler at one moment.
type Stats struct {
	// Version is the version of the program, and Tzdata that of its time zone data.
	Version, Tzdata string

	// Connected is true while there is a connection to the broker. Reconnects counts how often it
	// was restored.
	Connected  bool
	Reconnects uint64

	// Node is the name of the node, or "" while there is none. Trust is how long the node keeps
	// its claims if no further heartbeat is acknowledged: zero before the first heartbeat, and
	// negative when the lease is lost.
	Node  string
	Trust time.Duration

	// HeartbeatError is why the last heartbeat failed, or nil.
	HeartbeatError error

	// Registry is true once all jobs were read, and Clock once the broker's clock is known.
	// ClockOffset is the broker's clock minus this machine's; it is wrong by at most ClockError.
	Registry, Clock         bool
	ClockOffset, ClockError time.Duration

	// Produces is true while slots are published here. Producer counts them since Run was called.
	Produces bool
	Producer producer.Stats

	// Now is the broker's clock. Watermark is the time up to which all slots are published. It is
	// read every 5 s, and zero if it is not known.
	Now, Watermark time.Time

	// Queues has the backlog of each queue of this Scheduler. It is read every 5 s; a queue that
	// could not be read is missing.
	Queues map[string]Backlog

	// Withheld has the queues of this Scheduler. A value is true while the queue's slots are left
	// to other nodes because a service that its jobs need is not ready. Only "cronce run" knows
	// such services.
	Withheld map[string]bool

	// Owed counts the slots that this process works on, from the delivery of their message until
	// it is answered and the handler has returned. Stuck counts the handlers that still run
	// although their context ended longer ago than the grace period, or than 5 s if that is more.
	Owed, Stuck int
}

// Backlog is what waits in a queue.
type Backlog = struct {
	// Waiting counts the slots that the broker has not delivered yet. Taken counts those that it
	// has delivered and that have no outcome: they run, wait for their next attempt, or wait for
	// their job's lock.
	Waiting, Taken uint64

	// Oldest is when the oldest waiting slot was stored. It is zero if none waits, or if this
	// Scheduler does not publish slots.
	Oldest time.Time
}

// Stats returns the state of the Scheduler. It does not wait for the broker. Before Run is called,
// all fields are zero. Watermark and Queues are read only if there is an observer: to read them
// without one, use WithObserver(NopObserver{}).
func (s *Scheduler) Stats() Stats {
	if r := s.current(); r != nil {
		return Stats(r.Stats())
	}
	return Stats{}
}
