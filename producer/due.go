package producer

import (
	"container/heap"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// dueSlot is a slot that was handed out: a duty until it is acknowledged.
type dueSlot struct {
	core.DueSlot
	line *line
	def  *definition

	// shard is which part of the slot is meant, of how many; zero: the whole.
	shard, shards int
}

// isLate reports whether a catch-up policy was asked about the slot.
func (s dueSlot) isLate() bool { return s.CaughtUp || s.Missed > 0 }

// message is what the producer of that name publishes of the slot.
func (s dueSlot) message(node string) core.Message {
	slot := job.NewSlot(s.def.name, s.At).Part(s.shard, s.shards)
	slot.Range = s.Range
	return core.Message{
		Slot: slot, JobRevision: s.def.revision, Node: node, Due: s.Due,
		CaughtUp: s.CaughtUp, Missed: s.Missed, MissedLast: s.Last,
	}
}

// divided has a duty for each part of the slots that are split. One that is left
// out by its catch-up policy is recorded as a whole.
func divided(slots []dueSlot) []dueSlot {
	if !slices.ContainsFunc(slots, func(s dueSlot) bool { return s.line.shards > 0 }) {
		return slots
	}
	var all []dueSlot
	for _, s := range slots {
		if s.line.shards == 0 || s.Missed > 0 {
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

// due appends to slots, which is empty, those that are due at now, about limit of
// them. done says that there are no more: until then, nothing may be claimed about now.
func (b *board) due(slots []dueSlot, now time.Time, limit int) (_ []dueSlot, done bool) {
	for len(b.heap) > 0 && !b.heap[0].due().After(now) {
		if len(slots) >= limit {
			return slots, false
		}
		if g := b.heap[0]; g.paused || now.Sub(g.due()) > b.rules.Late {
			slots = b.judge(slots, g.lines[len(g.lines)-1].task, now)
		} else {
			slots = b.onTime(slots, g, now, limit)
		}
	}
	b.cursor = later(b.cursor, now)
	return slots, true
}

// judge hands out what is due of one job that has late slots, or slots of a pause:
// its catch-up policy sees all of the job's timeline at once.
func (b *board) judge(slots []dueSlot, t *task, now time.Time) []dueSlot {
	var behind []*line
	var timeline []core.Stretch
	for _, l := range t.lines() {
		if l.group != nil && !l.group.due().After(now) {
			behind = append(behind, l)
			timeline = append(timeline, l.stretch())
		}
	}
	for _, s := range core.Due(timeline, t.def.catchUp, now, b.rules) {
		slots = append(slots, dueSlot{DueSlot: s, line: lineOf(behind, s.At), def: t.def})
	}
	for _, l := range behind {
		b.leave(l)
		b.place(l, now.Add(-l.schedule.Delay()))
	}
	return slots
}

// lineOf is the line that a slot came from: the first that does not end before.
func lineOf(lines []*line, at time.Time) *line {
	return lines[max(0, slices.IndexFunc(lines, func(l *line) bool { return l.covers(at) }))]
}

// onTime hands out the due slots of a group none of which is late, and moves its
// lines on: all of them as one, or as many as the limit allows.
func (b *board) onTime(slots []dueSlot, g *group, now time.Time, limit int) []dueSlot {
	instants := slices.Collect(g.schedule.Between(g.next.Add(-time.Second), now.Add(-g.schedule.Delay())))
	n := min(len(g.lines), (limit-len(slots))/len(instants)+1)
	moving := g.lines[len(g.lines)-n:]
	slots = slices.Grow(slots, n*len(instants))
	for _, l := range moving {
		for _, at := range instants {
			if l.covers(at) {
				slots = append(slots, dueSlot{DueSlot: core.DueSlot{At: at, Due: at.Add(g.schedule.Delay())}, line: l, def: l.task.def})
			}
		}
	}
	next := g.schedule.Next(instants[len(instants)-1])
	if n == len(g.lines) && b.advance(g, next) {
		return slots
	}
	for _, l := range slices.Backward(slices.Clone(moving)) {
		b.leave(l)
		b.join(l, next)
	}
	return slots
}

// advance moves a whole group to its next slot in one step, unless there is none
// or another group waits there.
func (b *board) advance(g *group, next time.Time) bool {
	if next.IsZero() || b.groups[groupKey{g.schedule, next.Unix(), g.paused}] != nil {
		return false
	}
	delete(b.groups, g.key())
	g.next = next
	b.groups[g.key()] = g
	heap.Fix(&b.heap, g.index)
	for i := len(g.lines) - 1; i >= 0; i-- {
		if l := g.lines[i]; !l.covers(next) {
			b.leave(l)
		}
	}
	return true
}
