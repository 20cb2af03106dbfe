package doctor

import (
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const defaultNamespace = job.DefaultNamespace

// Facts are what Gather found. Those after Monitors are known only if the Survey is
// Complete.
type Facts struct {
	Namespace string
	Survey    kv.Survey

	// Monitors are the servers whose monitoring port was asked.
	Monitors []Monitor

	// Now is the broker's time, Local what this machine had for it. Zero: not known.
	Now, Local time.Time

	// Full is why the server can store nothing, as it says itself. Empty: it can, or it
	// cannot be known.
	Full string

	Nodes  []core.NodeEvent
	Jobs   []core.Entry
	Broken []*core.EntryError

	// Watermark, or why there is none: WatermarkErr wraps job.ErrNotFound,
	// job.ErrInvalid or job.ErrVersion. WatermarkRevision is that of its key,
	// RegistryRevision the registry's last one.
	Watermark                           core.Watermark
	WatermarkErr                        error
	WatermarkRevision, RegistryRevision uint64

	// Refused are the completions that came too late in the last day, Latest the
	// newest of them.
	Refused int
	Latest  job.Event

	// Open are the records without an outcome.
	Open []kv.LedgerEntry

	// Unreadable are the records, locks and nodes that cannot be read.
	Unreadable []*kv.UnreadableError

	// Locks are those in which somebody waits, or that have seen the future.
	Locks []core.Lock

	// Ended says of slots in locks since when they have an outcome; zero: they have
	// no record.
	Ended map[job.Slot]time.Time

	// Sweep is the end of the last sweep for lost slots, or why it is not known:
	// SweepErr wraps job.ErrNotFound, job.ErrInvalid or job.ErrVersion.
	Sweep    kv.SweepEnd
	SweepErr error

	// Unread are messages in the stream of slots that are no slots.
	Unread Unread

	// Takers are the consumers beside the queues. Still are the places, among them, of
	// those that had something to give in two looks, and that nobody asked.
	Takers []kv.Taker
	Still  []int

	// Unasked names the queues that nobody asked for their messages in two looks,
	// while their workers were idle.
	Unasked []string
}

// live are the nodes that were heard of within their lease.
func (f Facts) live() []core.Node {
	var live []core.Node
	for _, e := range f.Nodes {
		if e.Err == nil && e.Node.State == core.NodeAlive && f.Now.Sub(e.Time) <= e.Node.Lease {
			live = append(live, e.Node)
		}
	}
	return live
}

// workers are the live nodes that work on a queue.
func (f Facts) workers(queue string) []core.Node {
	return slices.DeleteFunc(f.live(), func(n core.Node) bool { return !n.Worker || !slices.Contains(n.Queues, queue) })
}

// idle reports whether the queue has messages to give and workers that run nothing,
// and nobody asks.
func (f Facts) idle(q kv.Queue) bool {
	if !unattended(q.Slots) && !unattended(q.Timers) {
		return false
	}
	workers := f.workers(q.Name)
	return len(workers) > 0 && !slices.ContainsFunc(workers, func(n core.Node) bool { return n.Running > 0 })
}

// unattended reports whether the consumer has messages to give, and nobody asks.
func unattended(info *consumerInfo) bool {
	return info != nil && info.NumPending > 0 && info.NumWaiting == 0
}

// delivered counts what the queue's consumers have given.
func delivered(q kv.Queue) (n uint64) {
	for _, info := range []*consumerInfo{q.Slots, q.Timers} {
		if info != nil {
			n += info.Delivered.Consumer
		}
	}
	return n
}

// active reports whether slots of the job are still to come.
func (f Facts) active(e core.Entry) bool {
	if e.Paused {
		return false
	}
	if len(e.Job.After) > 0 || !e.Job.On.IsZero() {
		return true // who knows
	}
	s, err := job.ParseSchedule(e.Job.Name, e.Job.Plan())
	return err == nil && !s.Next(f.Now).IsZero()
}
