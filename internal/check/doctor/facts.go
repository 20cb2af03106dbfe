package doctor

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Facts are what Gather found. Those after Full are known only if the Survey is Complete.
type Facts struct {
	Namespace string
	Survey    space.Survey

	// Monitors are the answers of the monitoring ports.
	Monitors []Monitor

	// Now is the broker's time, Local the time of this machine at that instant. Zero: not
	// known.
	Now, Local time.Time

	// Full is why the server can store nothing, by its own answer. Empty: it can, or that is
	// not known.
	Full string

	Nodes    []exchange.NodeEvent
	Handlers map[string]exchange.Handlers // of the live workers, by node
	Jobs     []plans.Entry
	Broken   []*plans.EntryError

	// Watermark is the stored watermark. WatermarkErr says why there is none: it wraps
	// job.ErrNotFound, job.ErrInvalid or job.ErrVersion. WatermarkRevision is the revision of
	// its key, RegistryRevision the last one of the registry.
	Watermark                           exchange.Watermark
	WatermarkErr                        error
	WatermarkRevision, RegistryRevision uint64

	// Strangers are nodes that answer for this namespace, and have no record in its bucket.
	Strangers []string

	// Refused is how many completions were refused in the last day, Latest the newest of
	// them.
	Refused int
	Latest  job.Event

	// Undeliverable has, by job, the newest event of the last hours which reports that its alerts are hopeless.
	Undeliverable map[string]job.Event

	// Open are the records without an outcome.
	Open []kv.LedgerEntry

	// Unreadable are the records, locks and nodes that cannot be read.
	Unreadable []*kv.UnreadableError

	// Locks are those in which slots wait, or whose newest slot is in the future.
	Locks []core.Lock

	// Ended is when holders of Locks got their outcome; zero: the holder has no record. It has no
	// entry for a holder whose record has no outcome or cannot be read.
	Ended map[job.Slot]time.Time

	// Sweep is the end of the last sweep for lost slots. SweepErr says why it is not known: it
	// wraps job.ErrNotFound, job.ErrInvalid or job.ErrVersion.
	Sweep    kv.SweepEnd
	SweepErr error

	// Unread are messages in the stream of slots that cannot be read.
	Unread Unread

	// NodeConsumers are the consumer of alerts, and those of messages that start jobs.
	// UnaskedConsumers has the indexes of those that had messages, and no request for them, at two
	// checks.
	NodeConsumers    []space.NodeConsumer
	UnaskedConsumers []int

	// Unasked are the queues that had messages, and no request for them, at two checks, while
	// their workers were idle.
	Unasked []string
}

// live returns the nodes whose last heartbeat is younger than their lease.
func (f Facts) live() []exchange.Node {
	var live []exchange.Node
	for _, e := range f.Nodes {
		if e.Alive(f.Now) {
			live = append(live, e.Node)
		}
	}
	return live
}

// produces reports whether a live node is a producer.
func (f Facts) produces() bool {
	return slices.ContainsFunc(f.live(), func(n exchange.Node) bool { return n.Producer })
}

// producingSince returns when the oldest live producer started, by the broker's clock. Zero: there
// is none.
func (f Facts) producingSince() (since time.Time) {
	for _, n := range f.live() {
		if n.Producer && (since.IsZero() || n.Began().Before(since)) {
			since = n.Began()
		}
	}
	return since
}

// workers returns the live nodes that work on a queue.
func (f Facts) workers(queue string) []exchange.Node {
	return slices.DeleteFunc(f.live(), func(n exchange.Node) bool { return !n.Worker || !slices.Contains(n.Queues, queue) })
}

// idle reports whether the queue has messages and no request for them, and workers that run
// nothing.
func (f Facts) idle(q space.Queue) bool {
	if !slices.ContainsFunc(q.Consumers(), neglected) {
		return false
	}
	workers := f.workers(q.Name)
	return len(workers) > 0 && !slices.ContainsFunc(workers, func(n exchange.Node) bool { return n.Running > 0 || f.runs(n.Name, q.Name) })
}

// runs reports whether a record says that the node runs a slot of the queue. The node's own record is
// as old as its last heartbeat, and the slot may have started since.
func (f Facts) runs(node, queue string) bool {
	return slices.ContainsFunc(f.Open, func(e kv.LedgerEntry) bool {
		return e.State == job.Running && e.Node == node && e.Queue == queue
	})
}

// neglected reports whether the consumer of a queue has messages, and no request for them. Messages
// that workers have returned to the queue count too: a worker returns those that arrive while a
// service that its jobs need is not ready.
func neglected(info *jetstream.ConsumerInfo) bool {
	return unattended(info) || info != nil && info.NumAckPending > 0 && info.NumWaiting == 0
}

// unattended reports whether the consumer has messages, and no request for them.
func unattended(info *jetstream.ConsumerInfo) bool {
	return info != nil && info.NumPending > 0 && info.NumWaiting == 0
}

// delivered counts what the consumers of the queue have delivered.
func delivered(q space.Queue) (n uint64) {
	for _, info := range q.Consumers() {
		n += info.Delivered.Consumer
	}
	return n
}

// active reports whether more slots of the job may come.
func (f Facts) active(e plans.Entry) bool {
	if e.Paused {
		return false
	}
	if !e.Job.Plan().Scheduled() {
		return true // other jobs, messages or triggers start it, at any time
	}
	s, err := job.ParseSchedule(e.Job.Name, e.Job.Plan())
	return err == nil && !s.Next(f.Now).IsZero()
}
