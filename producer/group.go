package producer

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// schedule is shared by all lines that have the same one.
type schedule struct {
	*job.Schedule
	key   string // of the board's map
	lines int    // that have it
}

// line is one stretch of one job's timeline, walking along its slots.
type line struct {
	task     *task
	schedule *schedule

	// The line has slots after from, up to and including until, in seconds
	// since 1970; never: no end. since is when it came to be, by the broker's
	// clock.
	from, until int64
	since       stamp

	// group holds the line at its next slot; nil when no slot is to come. index
	// is the line's place in it.
	group *group
	index uint32

	// later is the next line of the task.
	later *line

	// shards is how many parts each slot has, zero for one.
	shards uint16

	// paused lines hold what fell due in a pause that has ended.
	paused bool

	// ended lines are of no job any more: they have what fell due before.
	ended bool
}

const never = math.MaxInt64

// bound is the bound of a stretch in whole seconds: slots have no fractions.
func bound(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return t.Unix()
}

func (l *line) after() time.Time         { return time.Unix(l.from, 0).UTC() }
func (l *line) covers(at time.Time) bool { return at.Unix() <= l.until }

// stretch is what the line has left of the job's timeline.
func (l *line) stretch() core.Stretch {
	s := core.Stretch{Schedule: l.schedule.Schedule, After: l.group.next.Add(-time.Second), Paused: l.paused}
	if l.until != never {
		s.Until = time.Unix(l.until, 0).UTC()
	}
	return s
}

// group is all lines of one schedule whose next slot is the same. The heap has
// one entry for each group: a line that lags behind the others of its schedule,
// because its job was heard of late, travels in a group of its own until it has
// caught up with them.
type group struct {
	schedule *schedule
	next     time.Time
	paused   bool
	lines    []*line
	index    int // in the heap, or aside
}

// aside is the index of a group that is not in the heap: it has one line, of a task that
// is held.
const aside = -1

type groupKey struct {
	schedule *schedule
	next     int64
	paused   bool
}

func (g *group) key() groupKey  { return groupKey{g.schedule, g.next.Unix(), g.paused} }
func (g *group) due() time.Time { return g.next.Add(g.schedule.Delay()) }

// schedule returns the schedule of the plan, shared with other jobs where it is
// the same.
func (b *board) schedule(name string, p job.Plan) (*schedule, error) {
	s, err := b.plans.Schedule(name, p)
	if err != nil {
		return nil, err
	}
	key := s.Key()
	shared := b.schedules[key]
	if shared == nil {
		shared = &schedule{Schedule: s, key: key}
		b.schedules[key] = shared
	}
	return shared, nil
}

func (s *schedule) newLine(t *task, part core.Stretch) *line {
	s.lines++
	return &line{
		task: t, schedule: s, from: bound(part.After), until: bound(part.Until), since: stampOf(part.Since), paused: part.Paused,
	}
}

// is reports whether the line is that stretch, which may have got another end.
func (l *line) is(s *schedule, part core.Stretch) bool {
	return l.schedule == s && l.from == bound(part.After) && l.paused == part.Paused && l.since == stampOf(part.Since)
}

// place puts a line, which is in no group, before its first slot after the given
// instant, and reports whether there is one.
func (b *board) place(l *line, after time.Time) bool {
	return b.join(l, l.schedule.Next(later(after, l.after())))
}

// join puts a line, which is in no group, before the given slot, unless that is
// none of the line's any more.
func (b *board) join(l *line, next time.Time) bool {
	if next.IsZero() || !l.covers(next) {
		return false
	}
	key := groupKey{l.schedule, next.Unix(), l.paused}
	g := b.groups[key]
	switch {
	case l.task.held:
		g = &group{schedule: l.schedule, next: next, paused: l.paused, index: aside}
	case g == nil:
		g = &group{schedule: l.schedule, next: next, paused: l.paused}
		b.groups[key] = g
		heap.Push(&b.heap, g)
	}
	l.group, l.index = g, uint32(len(g.lines))
	g.lines = append(g.lines, l)
	return true
}

// leave takes a line out of its group, and the group off the heap with the last
// of them.
func (b *board) leave(l *line) {
	g := l.group
	if g == nil {
		return
	}
	end := len(g.lines) - 1
	g.lines[l.index] = g.lines[end]
	g.lines[l.index].index = l.index
	g.lines[end] = nil
	g.lines = g.lines[:end]
	l.group = nil
	if end == 0 && g.index != aside {
		heap.Remove(&b.heap, g.index)
		delete(b.groups, g.key())
	}
}

// back takes back a slot that was handed out, to hand it out again with all that
// came after it. A range may hold slots of several plans.
func (b *board) back(s dueSlot) {
	if !s.Range {
		b.rewind(s.line, s.At)
		return
	}
	for _, l := range s.line.task.lines() {
		if first := l.schedule.Next(later(l.after(), s.At.Add(-time.Second))); !first.IsZero() && !first.After(s.Last) {
			b.rewind(l, first)
		}
	}
}

func (b *board) rewind(l *line, at time.Time) {
	if l.group != nil && !at.Before(l.group.next) {
		return
	}
	b.leave(l)
	if lines := l.task.lines(); b.join(l, at) && !slices.Contains(lines, l) {
		l.task.setLines(slices.Insert(lines, 0, l))
	}
}

// shorten ends the line, where a newer plan or a pause begins.
func (b *board) shorten(l *line, until int64) {
	l.until = until
	if l.group != nil && !l.covers(l.group.next) {
		b.leave(l)
	}
}

// groupHeap is a container/heap of groups, the one that falls due first on top.
type groupHeap []*group

func (h groupHeap) Len() int           { return len(h) }
func (h groupHeap) Less(i, j int) bool { return h[i].due().Before(h[j].due()) }
func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *groupHeap) Push(x any) {
	g := x.(*group)
	g.index = len(*h)
	*h = append(*h, g)
}

func (h *groupHeap) Pop() any {
	old := *h
	end := len(old) - 1
	g := old[end]
	old[end] = nil
	*h = old[:end]
	return g
}
