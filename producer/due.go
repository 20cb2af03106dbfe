package producer

import (
	"container/heap"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// dueSlot is a slot that the agenda has returned. This producer publishes it, or keeps a copy
// until the slot's owner has published it.
type dueSlot struct {
	plans.DueSlot
	line *line
	def  *definition

	// shards is how many shards the slot is split into. This dueSlot is the shard with the number
	// shard, from 1. Both are zero for a slot that is not split.
	shard, shards int
}

// isRange reports whether this is a range of missed slots.
func (s dueSlot) isRange() bool { return s.Missed > 0 }

// isLate reports whether a catch-up policy has decided about the slot.
func (s dueSlot) isLate() bool { return s.CaughtUp || s.isRange() }

// message returns what the named producer publishes for the slot.
func (s dueSlot) message(node string) core.Message {
	slot := job.NewSlot(s.def.name, s.At).WithShard(s.shard, s.shards)
	slot.Range = s.isRange()
	return core.Message{
		Slot: slot, JobRevision: s.def.revision, Node: node, Due: s.Due,
		CaughtUp: s.CaughtUp, Missed: s.Missed, MissedLast: s.Last,
	}
}

// payload returns the body of the message. A range has none, since it does not run.
func (s dueSlot) payload() string {
	if s.isRange() {
		return ""
	}
	return s.def.payload
}

// divided replaces each slot of a sharded job with its shards. Ranges stay whole.
func divided(slots []dueSlot) []dueSlot {
	if !slices.ContainsFunc(slots, func(s dueSlot) bool { return s.line.shards > 0 }) {
		return slots
	}
	var all []dueSlot
	for _, s := range slots {
		if s.line.shards == 0 || s.isRange() {
			all = append(all, s)
			continue
		}
		n := int(s.line.shards)
		for i := range n {
			s.shard, s.shards = i+1, n
			all = append(all, s)
		}
	}
	return all
}

// due appends the slots that are due at now to slots, which is empty. It stops after about
// limit slots. done reports that no due slot is left; only then may the caller make a
// mark for now.
func (a *agenda) due(slots []dueSlot, now time.Time, limit int) (_ []dueSlot, done bool) {
	for len(a.heap) > 0 && !a.heap[0].due().After(now) {
		if len(slots) >= limit {
			return slots, false
		}
		if g := a.heap[0]; g.paused || now.Sub(g.due()) > plans.LateAfter {
			slots = a.judge(slots, g.lines[len(g.lines)-1].job, now)
		} else {
			slots = a.onTime(slots, g, now, limit)
		}
	}
	a.cursor = plans.Later(a.cursor, now)
	return slots, true
}

// judge returns the due slots of a job that has late slots, or slots that fell due in a pause.
// The catch-up policy decides about all of them at once.
func (a *agenda) judge(slots []dueSlot, j *plannedJob, now time.Time) []dueSlot {
	var behind []*line
	var timeline []plans.Stretch
	for _, l := range j.lines() {
		if l.group != nil && !l.group.due().After(now) {
			behind = append(behind, l)
			timeline = append(timeline, l.stretch())
		}
	}
	for _, s := range plans.Due(timeline, j.def.catchUp, now, a.horizon) {
		slots = append(slots, dueSlot{DueSlot: s, line: lineOf(behind, s.At), def: j.def})
	}
	for _, l := range behind {
		a.detach(l)
		a.attachAfter(l, now.Add(-l.schedule.Delay()))
	}
	return slots
}

// lineOf returns the line of a slot: the first one that does not end before it.
func lineOf(lines []*line, at time.Time) *line {
	return lines[max(0, slices.IndexFunc(lines, func(l *line) bool { return !l.endsBefore(at) }))]
}

// onTime returns the due slots of a group, none of which is late. It moves the group's lines to
// their next slot: all of them, or as many as limit allows.
func (a *agenda) onTime(slots []dueSlot, g *group, now time.Time, limit int) []dueSlot {
	instants := slices.Collect(g.schedule.Between(g.next.Add(-time.Second), now.Add(-g.schedule.Delay())))
	n := min(len(g.lines), (limit-len(slots))/len(instants)+1)
	moving := g.lines[len(g.lines)-n:]
	slots = slices.Grow(slots, n*len(instants))
	for _, l := range moving {
		for _, at := range instants {
			if !l.endsBefore(at) {
				slots = append(slots, dueSlot{DueSlot: plans.DueSlot{At: at, Due: at.Add(g.schedule.Delay())}, line: l, def: l.job.def})
			}
		}
	}
	next := g.schedule.Next(instants[len(instants)-1])
	if n == len(g.lines) && a.advance(g, next) {
		return slots
	}
	for _, l := range slices.Backward(slices.Clone(moving)) {
		a.detach(l)
		a.attach(l, next)
	}
	return slots
}

// advance moves a whole group to its next slot. It does nothing, and returns false, if
// there is no next slot or another group is already at it.
func (a *agenda) advance(g *group, next time.Time) bool {
	if next.IsZero() || a.groups[groupKey{g.schedule, next.Unix(), g.paused}] != nil {
		return false
	}
	delete(a.groups, g.key())
	g.next = next
	a.groups[g.key()] = g
	heap.Fix(&a.heap, g.index)
	for i := len(g.lines) - 1; i >= 0; i-- {
		if l := g.lines[i]; l.endsBefore(next) {
			a.detach(l)
		}
	}
	return true
}
