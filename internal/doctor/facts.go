package doctor

import (
	"slices"
	"time"

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

	Nodes  []job.NodeEvent
	Jobs   []job.Entry
	Broken []*job.EntryError

	// Watermark, or why there is none: WatermarkErr wraps job.ErrNotFound,
	// job.ErrInvalid or job.ErrVersion. WatermarkRevision is that of its key,
	// RegistryRevision the registry's last one.
	Watermark                           job.Watermark
	WatermarkErr                        error
	WatermarkRevision, RegistryRevision uint64

	// Refused are the completions that came too late in the last day, Latest the
	// newest of them.
	Refused int
	Latest  job.Event

	// Open are the records without an outcome.
	Open []kv.LedgerEntry

	// Locks are those in which somebody waits, or that have seen the future.
	Locks []job.Lock

	// Ended says of slots in locks since when they have an outcome; zero: they have
	// no record.
	Ended map[job.Slot]time.Time

	// Takers are the consumers beside the queues. Still are the places, among them, of
	// those that had something to give in two looks, and that nobody asked.
	Takers []kv.Taker
	Still  []int

	// Unasked names the queues that nobody asked for their messages in two looks,
	// while their workers were idle.
	Unasked []string
}

// live are the nodes that were heard of within their lease.
func (f Facts) live() []job.Node {
	var live []job.Node
	for _, e := range f.Nodes {
		if e.Err == nil && e.Node.State == job.NodeAlive && f.Now.Sub(e.Time) <= e.Node.Lease {
			live = append(live, e.Node)
		}
	}
	return live
}

// workers are the live nodes that work on a queue.
func (f Facts) workers(queue string) []job.Node {
	return slices.DeleteFunc(f.live(), func(n job.Node) bool { return !n.Worker || !slices.Contains(n.Queues, queue) })
}

// idle reports whether the queue has messages to give and workers that run nothing,
// and nobody asks.
func (f Facts) idle(q kv.Queue) bool {
	if q.Slots == nil || q.Slots.NumPending == 0 || q.Slots.NumWaiting > 0 {
		return false
	}
	workers := f.workers(q.Name)
	return len(workers) > 0 && !slices.ContainsFunc(workers, func(n job.Node) bool { return n.Running > 0 })
}

// active reports whether slots of the job are still to come.
func (f Facts) active(e job.Entry) bool {
	if e.Paused {
		return false
	}
	if len(e.Job.After) > 0 || !e.Job.On.IsZero() {
		return true // who knows
	}
	s, err := job.ParseSchedule(e.Job.Name, e.Job.Plan())
	return err == nil && !s.Next(f.Now).IsZero()
}
