package verify

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// Kind is a kind of problem.
type Kind string

const (
	Missing   Kind = "missing"    // it should exist, and has neither a record nor a message
	NoOutcome Kind = "no_outcome" // no message will bring it an outcome, or its next step is overdue
	Doubled   Kind = "doubled"    // it ended more than once
	Early     Kind = "early"      // it was started before it was due
)

// Problem is a slot that has a problem.
type Problem struct {
	Kind Kind
	Slot job.Slot
	Due  time.Time // zero: not known

	// State is the state of the record, or pending for a message without one. Empty: there is
	// neither, or it does not matter (Doubled).
	State job.State
	Node  string

	// Detail says what was seen.
	Detail string

	// Reported says that an event reported an outcome of a missing slot. A repair must publish an
	// event that reopens the slot, or the slot will count as doubled.
	Reported bool

	// Beyond says why the slot cannot be repaired by offering it again. Empty: it can.
	Beyond string
}

// Problems ends the walk and yields the problems, job by job, missing slots first. What is passed
// to the check meanwhile counts from the next call on.
func (c *Check) Problems() iter.Seq[Problem] {
	timelines := c.finish()
	return func(yield func(Problem) bool) {
		for _, l := range timelines {
			for p := range c.missing(l) {
				if !yield(p) {
					return
				}
			}
			for _, p := range append(c.lostRuns(l), c.unfinished(l)...) {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// missing yields the slots of a job that have neither a record nor a message.
func (c *Check) missing(l *timeline) iter.Seq[Problem] {
	return func(yield func(Problem) bool) {
		for unix := range l.unrecorded.all() {
			if l.waiting.has(unix) || within(l.coming, unix) {
				continue
			}
			if !yield(c.describeMissing(l, unix)) {
				return
			}
		}
	}
}

// describeMissing describes the missing slot at an instant.
func (c *Check) describeMissing(l *timeline, unix int64) Problem {
	if l.chain != nil && l.chain.judged.has(unix) {
		p := c.unfollowed(l, job.NewSlot(l.name, time.Unix(unix, 0)))
		p.Reported = l.reported.has(unix)
		return p
	}
	p := Problem{Kind: Missing, Slot: job.NewSlot(l.name, time.Unix(unix, 0)), Detail: "neither a record nor a message"}
	plan, _ := l.entry.PlanAt(p.Slot.At)
	for _, s := range l.stretches {
		if s.first <= unix && unix <= s.last {
			p.Due = p.Slot.At.Add(s.schedule.Delay())
		}
	}
	if p.Reported = l.reported.has(unix); p.Reported {
		p.Detail += ", although an event reported its outcome"
	}
	switch {
	case !c.published(l.entry.Revision, plan.From, p.Due):
		p.Detail = "not published: the watermark has not passed it"
		p.Beyond = "the next producer publishes it, or records it as missed, by the job's catch-up policy"
	case c.old(p.Slot.At):
		p.Beyond = c.beyondHorizon()
	}
	return p
}

// published reports whether the watermark says that a slot was published. The slot is due at due,
// and its plan came into force at from.
func (c *Check) published(revision uint64, from, due time.Time) bool {
	w := c.cfg.Watermark
	return !due.After(w.Time) && (revision <= w.Revision || !from.After(w.RegistryTime))
}

func (c *Check) old(at time.Time) bool { return c.cfg.Now.Sub(at) > c.cfg.Settings.Horizon }

func (c *Check) beyondHorizon() string {
	return fmt.Sprintf("older than the horizon of %v: it must not run any more", c.cfg.Settings.Horizon)
}

// unfinished returns the problems of slots of a job that have a record or a message.
func (c *Check) unfinished(l *timeline) []Problem {
	var found []Problem
	busy := false
	for s, r := range l.unsettled {
		p := Problem{Kind: NoOutcome, Slot: s, Due: r.due, State: r.state, Node: r.node}
		if p.Detail = c.stuck(l, s, r); p.Detail == "" {
			busy = true
			continue
		}
		p.Beyond = c.beyond(l, s, r)
		found = append(found, p)
	}
	// A slot of a guarded job may have to wait for another one that runs.
	if !busy || l.entry != nil && !l.entry.Job.Guarded() {
		for unix := range l.overdue.all() {
			found = append(found, pending(job.NewSlot(l.name, time.Unix(unix, 0))))
		}
		for token, overdue := range l.tokens {
			if overdue {
				found = append(found, pending(job.Slot{Job: l.name, Token: token}))
			}
		}
	}
	for s, why := range l.doubled {
		found = append(found, Problem{Kind: Doubled, Slot: s, Detail: why, Beyond: "a second run cannot be undone"})
	}
	for s, why := range l.early {
		found = append(found, Problem{Kind: Early, Slot: s, Detail: why, Beyond: "a start cannot be undone"})
	}
	slices.SortFunc(found, func(x, y Problem) int {
		return cmp.Or(x.Slot.At.Compare(y.Slot.At), cmp.Compare(x.Slot.Token, y.Slot.Token), cmp.Compare(x.Kind, y.Kind))
	})
	return found
}

const takeIt = "its message waits: a worker with a handler for the job must take it"

func pending(s job.Slot) Problem {
	return Problem{
		Kind: NoOutcome, Slot: s, State: job.Pending,
		Detail: fmt.Sprintf("it has been waiting for more than %v, and no worker takes it", Patience), Beyond: takeIt,
	}
}

// stuck says why a slot without an outcome will not get one, or should have one. Empty: it is
// in progress.
func (c *Check) stuck(l *timeline, s job.Slot, r unsettled) string {
	waits, fresh := l.waits(s), s.Token == "" && l.recent.has(s.At.Unix())
	if overdue, ok := l.tokens[s.Token]; ok {
		fresh = !overdue
	}
	if r.shards > 0 {
		return c.stuckWhole(l, s, r, waits)
	}
	if r.state == job.Running {
		return c.stuckRunning(l, r, waits, fresh)
	}
	switch {
	case fresh:
	case !waits:
		return fmt.Sprintf("it is %s, and its message is gone", r.state)
	case c.cfg.Now.Sub(r.retryAt) > Patience:
		return fmt.Sprintf("its next attempt was due at %s, and no worker makes it", r.retryAt.UTC().Format(time.RFC3339))
	}
	return ""
}

// stuckWhole is stuck for a slot that is split. Its shards do the work, and each of them is
// judged by itself.
func (c *Check) stuckWhole(l *timeline, s job.Slot, r unsettled, waits bool) string {
	for i := range r.shards {
		if _, ok := l.unsettled[s.WithShard(i+1, r.shards)]; ok {
			return ""
		}
	}
	if waits {
		return ""
	}
	return "its shards have ended, or their messages are gone, and no worker records its outcome"
}

func (c *Check) stuckRunning(l *timeline, r unsettled, waits, fresh bool) string {
	dead, written := c.dead(r.node)
	switch {
	case dead && !waits:
		return fmt.Sprintf("its worker %s is dead, and its message is gone", r.node)
	case dead && !fresh && c.cfg.Now.Sub(plans.Later(written, r.started)) > c.cfg.Settings.Lease+Patience:
		return fmt.Sprintf("its worker %s is dead, and no worker has taken it over", r.node)
	case dead || l.entry == nil || l.entry.Job.Timeout == 0:
		return ""
	}
	if ran := c.cfg.Now.Sub(r.started); ran > l.entry.Job.Timeout+Patience {
		return fmt.Sprintf("it has been running for %v, and its timeout is %v", ran.Round(time.Second), l.entry.Job.Timeout)
	}
	return ""
}

// dead reports whether a node counts as dead, and when its record was last written; zero: it has
// none.
func (c *Check) dead(node string) (dead bool, written time.Time) {
	n := c.nodes[node]
	return n.Dead(c.cfg.Now, c.cfg.Settings.Lease), n.Time
}

// beyond says why a slot that has a record cannot be offered again. Empty: it can.
func (c *Check) beyond(l *timeline, s job.Slot, r unsettled) string {
	if r.shards > 0 && l.entry != nil {
		return ""
	}
	dead, _ := c.dead(r.node)
	switch {
	case r.state == job.Running && !dead:
		return "its worker " + r.node + " lives, and only that worker can end it"
	case l.waits(s):
		return takeIt
	case l.entry == nil:
		return "its job is not in the registry, and its payload was in its message"
	}
	return ""
}

// Offer returns the messages that offer a slot again, one for each of its shards, and their
// payload. For a triggered run that has a record, the caller must take the payload from there instead.
// If several repairs run at once, they offer the same messages, and the stream drops the copies. If a
// slot has no record and the catch-up policy of its job would not run it so late, it is offered as a
// range of one missed slot.
// There are no messages for a job that is not in the registry.
func (c *Check) Offer(p Problem, node string) (queue string, messages []core.Message, payload []byte) {
	l := c.timelines[p.Slot.Job]
	if l == nil || l.entry == nil {
		return "", nil, nil
	}
	j := l.entry.Job.WithDefaults()
	m := core.Message{
		Slot: p.Slot, JobRevision: l.entry.Revision, Node: node, Due: p.Due.UTC(),
		CaughtUp: true, // its start deadline counts from now
		Offer:    1,
	}
	queue = j.Queue
	late, shards := c.cfg.Now.Sub(p.Slot.At), 0
	if plan, ok := l.entry.PlanAt(p.Slot.At); ok {
		shards = plan.Plan.Shards
	}
	missed := c.cfg.Now.Sub(p.Due) > plans.LateAfter && (j.CatchUp.Policy == job.CatchUpNone || j.CatchUp.Within > 0 && late > j.CatchUp.Within)
	if l.chain != nil {
		missed, shards, m.Chained = l.entry.Paused, j.Shards, true
	}
	if p.Kind == Missing && missed {
		m.Missed, m.CaughtUp = 1, false
		if l.chain == nil {
			m.Slot.Range, m.MissedLast = true, p.Slot.At
		}
	}
	if r, ok := l.unsettled[p.Slot]; ok {
		queue, shards = r.queue, r.shards
	}
	if shards == 0 || m.Missed > 0 {
		return queue, []core.Message{m}, j.Payload
	}
	for i := range shards {
		shard := m
		shard.Slot = p.Slot.WithShard(i+1, shards)
		messages = append(messages, shard)
	}
	return queue, messages, j.Payload
}
