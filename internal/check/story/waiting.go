package story

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// explainWaiting tells the story of a slot that has a message and no record.
func (t *explainer) explainWaiting() {
	m := t.message
	t.story.State = job.Pending
	t.addDue(m.Due)
	how := ""
	switch {
	case m.Missed > 0 && m.Chained:
		how = ", to be recorded as missed: the job is paused"
	case m.Missed > 0:
		how = ", to be recorded as missed: the catch-up policy leaves it out"
	case m.Chained:
		how = ", since the jobs that it comes after have succeeded"
	case m.Backfill:
		how = ", for an operator"
	case m.CaughtUp:
		how = ", late, by the catch-up policy"
	case m.Offer > 0:
		how = " again, since an earlier message was lost"
	}
	if m.Timer {
		t.why("It was triggered by %s, and waits for its time, %s.", cmp.Or(m.Node, "an unknown client"), stamp(m.Due))
		if t.removal != "" {
			t.why("%s: unless the job is there again by then, the slot ends without being run.", t.removal)
		}
		return
	}
	t.addPublished(m.Published, m.Node, how)
	t.addEvents()
	if t.removal != "" {
		t.why("%s: the next worker of queue %s that receives the slot ends it without running it. To end it now: cronce slot cancel %s",
			t.removal, m.Queue, t.story.Slot.ID())
		return
	}
	if m.Stranded {
		t.why("It waits in queue %s, but the server no longer delivers its message. This happens when other messages of the stream are purged by hand. "+
			"The fleet publishes the slot again within two minutes.", m.Queue)
		return
	}
	t.why("It waits in queue %s%s.", m.Queue, cmp.Or(t.obstacle(m.Queue), t.notPulled(m), ", for a free worker"))
}

// obstacle says what keeps the queue's workers from starting the slot. It is empty if
// only earlier work does.
func (t *explainer) obstacle(queue string) string {
	workers, able := t.workers(queue)
	switch {
	case workers == 0:
		return fmt.Sprintf(", and no live node works on queue %s", queue)
	case len(able) == 0:
		return fmt.Sprintf(", and none of the %d live nodes that work on queue %s has a handler for job %s", workers, queue, t.story.Slot.Job)
	}
	return t.lockUnreadable()
}

// workers returns how many live nodes work on the queue, and those of them that have, or may have, a
// handler for the job.
func (t *explainer) workers(queue string) (all int, able []exchange.NodeEvent) {
	for _, ev := range t.nodes {
		if ev.Alive(t.now) && slices.Contains(ev.Node.Queues, queue) {
			all++
			if t.handlers[ev.Name].Set().MayHandle(t.story.Slot.Job) {
				able = append(able, ev)
			}
		}
	}
	return all, able
}

// notPulledAfter is how long a slot must have waited for idle workers before the story
// says that they do not pull it. Heartbeats, which say what workers run, come less often
// than slots.
const notPulledAfter = 10 * time.Second

// notPulled says that the workers that have a handler for the job run nothing, and still
// do not pull the slot. It is empty if they do run something. What a worker of several queues
// runs may be of another queue: heartbeats do not say.
func (t *explainer) notPulled(m *stream.WaitingSlot) string {
	if t.now.Sub(m.Published) < notPulledAfter {
		return ""
	}
	_, able := t.workers(m.Queue)
	var idle []string
	elsewhere := false
	for _, ev := range able {
		switch {
		case ev.Node.Running > 0 && len(ev.Node.Queues) < 2:
			return ""
		case ev.Node.Running > 0:
			elsewhere = true
		}
		idle = append(idle, ev.Name)
	}
	if elsewhere {
		return ", for a free worker; if its workers run only slots of their other queues, a service that they call may not be ready, or the queue is paused on the server: cronce doctor says which"
	}
	return fmt.Sprintf(", and its workers are idle but do not take it: a service that they call is not ready (ready: in their job file), "+
		"or the queue is paused on the server; cronce doctor, their logs and /readyz say which: %s", strings.Join(idle[:min(len(idle), 3)], ", "))
}

// lockUnreadable says that the job's lock cannot be read, so that no slot of the job starts.
func (t *explainer) lockUnreadable() string {
	if t.lockErr == nil {
		return ""
	}
	return fmt.Sprintf(", and its job's lock cannot be read: %v; cronce doctor --remove-unreadable removes the lock", t.lockErr)
}

// inLine says which slots of the job must end before one that stands in the line can start.
func (t *explainer) inLine() string {
	if _, called := t.lock.Holder(t.story.Slot.Whole()); called {
		return "It was called from its job's line" + cmp.Or(t.obstacle(t.record.Queue), ", and waits for a free worker") + "."
	}
	holders := codec.Map(t.lock.Holders, func(h core.LockSlot) string { return h.Slot.ID() })
	if len(holders) == 0 {
		return "It stands in its job's line, and no slot of the job runs: the fleet calls the first slot within a minute" + t.lockUnreadable() + "."
	}
	more := ""
	if n := len(holders) - mostHolders; n > 0 {
		holders, more = holders[:mostHolders], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("It stands in its job's line. The first slot there starts when one of these has its outcome: %s%s.", strings.Join(holders, ", "), more)
}

// mostHolders is how many slots a sentence names.
const mostHolders = 3

// health says whether a node is alive, and what happens to its slots if not.
func (t *explainer) health(name string) string {
	for _, ev := range t.nodes {
		switch {
		case ev.Name != name:
		case ev.Err != nil:
			return "whose record cannot be read"
		case ev.Node.State == exchange.NodeFenced:
			return fmt.Sprintf("which %s declared dead at %s: another worker takes it over", ev.Node.FencedBy, stamp(ev.Node.FencedAt))
		case ev.Node.State == exchange.NodeStopped:
			return "which has stopped: another worker takes it over"
		case !ev.Alive(t.now):
			return fmt.Sprintf("which has been silent for %v: another worker may take it over", t.now.Sub(ev.Time).Round(time.Second))
		default:
			return "which is alive"
		}
	}
	return "which is not known any more: another worker takes it over"
}
