package cronce

import (
	"time"

	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
)

// Observer receives measurements of a Scheduler. Its methods must not block, and are called from
// many goroutines at once. For Prometheus, use *metrics.Metrics. New versions may add methods.
type Observer interface {
	// Follow is called once, before any other method. stats may be called at any time from
	// then on, and does not wait for the broker.
	Follow(stats func() Stats)

	// Started is called before each handler starts. late is how long ago its slot was due.
	// planned is false if the slot could not start on time: for a further attempt, a slot that
	// was caught up or backfilled, and a triggered run.
	Started(queue string, late time.Duration, planned bool)

	// Returned is called when a handler has returned. took is how long it ran.
	Returned(queue string, took time.Duration)

	// Parked counts the slots that wait here for their job's lock: by is 1 when a slot begins
	// to wait, and -1 when its wait ends.
	Parked(queue string, by int)

	// Event is called for every event that the Scheduler publishes: outcomes, retries,
	// takeovers, fences, refused completions.
	Event(job.Event)

	// Ledger is called for each request to the ledger, "read" or "write", with the time to
	// its answer and its failure. A conflict and a missing record are answers, not failures.
	Ledger(request string, took time.Duration, failed error)

	// HeartbeatFailed is called for each heartbeat that was refused or not answered, and
	// LeaseLost for each incarnation that lost its lease.
	HeartbeatFailed()
	LeaseLost()

	// Offered is called for each slot that the sweep found without a message.
	Offered()
}

// Stats is the state of a Scheduler at one moment. Its fields:
//
//   - Version, Tzdata: versions of the program and of its time zone data.
//   - Connected, Reconnects: whether there is a connection, and how often it was restored.
//   - Node: name of the node, or "". Trust: for how long it trusts itself if no further heartbeat
//     is acknowledged. HeartbeatError: why the last heartbeat failed, or nil.
//   - Registry, Clock: whether all jobs were read, and whether the broker's clock is known.
//   - ClockOffset, ClockError: the broker's clock minus this machine's, and the bound of its error.
//   - Produces, Producer: whether slots are published here, and counts of them: Published, Folded,
//     Retried, StoodBy, Missed, CaughtUp, Standby.
//   - Now, Watermark: the broker's clock, and the time up to which all slots are published, or zero.
//   - Queues: for each queue, the slots that are Waiting and Taken, and since when the Oldest waits.
//   - Withheld: the queues of this worker, and whether their slots are left to other nodes because a
//     service is not ready.
//   - Owed, Stuck: how many slots are claimed here and not settled, and how many handlers do not
//     return although their context has ended.
type Stats = replica.Stats
