package producer

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// schedule is shared by all lines whose schedules have the same job.Schedule.Key.
type schedule struct {
	*job.Schedule
	key  string // in the agenda's map
	uses int    // how many lines have the schedule
}

// line is one stretch of one job's timeline. It moves from slot to slot.
type line struct {
	job      *plannedJob
	schedule *schedule

	// The line has the slots after from, up to and including until, in seconds since 1970.
	// never means no end. since is when the stretch came into force, by the broker's clock.
	from, until int64
	since       stamp

	// group holds the line at its next slot. It is nil if the line has no slot to come.
	// index is the line's position in the group.
	group *group
	index uint32

	// later is the next line of the job.
	later *line

	// shards is the number of shards of each slot, zero if slots are not split.
	shards uint16

	// A paused line has the slots that fell due in a pause which has ended.
	paused bool

	// An ended line belongs to no plan of a job any more. It has the slots that fell due
	// before it ended.
	ended bool
}

const never = math.MaxInt64

// bound returns a bound of a stretch in whole seconds, since slots have no fractions. Zero: never.
func bound(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return t.Unix()
}

func (l *line) after() time.Time { return time.Unix(l.from, 0).UTC() }

// endsBefore reports whether the line ends before the slot at the given instant.
func (l *line) endsBefore(at time.Time) bool { return at.Unix() > l.until }

// stretch returns the part of the job's timeline that the line still has to go through.
func (l *line) stretch() plans.Stretch {
	s := plans.Stretch{Schedule: l.schedule.Schedule, After: l.group.next.Add(-time.Second), Paused: l.paused}
	if l.until != never {
		s.Until = time.Unix(l.until, 0).UTC()
	}
	return s
}

// group is all lines of one schedule with the same next slot. The heap has one entry for
// each group. A line that lags behind its schedule, because its job became known late, is
// in a group of its own until it has caught up.
type group struct {
	schedule *schedule
	next     time.Time
	paused   bool
	lines    []*line
	index    int // in the heap, or aside
}

// aside is the index of a group that is not in the heap. It has one line, of a suspended
// job.
const aside = -1

type groupKey struct {
	schedule *schedule
	next     int64
	paused   bool
}

func (g *group) key() groupKey  { return groupKey{g.schedule, g.next.Unix(), g.paused} }
func (g *group) due() time.Time { return g.next.Add(g.schedule.Delay()) }

// schedule returns the schedule of the plan, shared with all jobs that have the same.
func (a *agenda) schedule(name string, p job.Plan) (*schedule, error) {
	s, err := a.parser.Schedule(name, p)
	if err != nil {
		return nil, err
	}
	key := s.Key()
	shared := a.schedules[key]
	if shared == nil {
		shared = &schedule{Schedule: s, key: key}
		a.schedules[key] = shared
	}
	return shared, nil
}

func (s *schedule) newLine(j *plannedJob, part plans.Stretch, shards int) *line {
	s.uses++
	return &line{
		job: j, schedule: s, from: bound(part.After), until: bound(part.Until), since: stampOf(part.Since), paused: part.Paused,
		shards: uint16(shards), // at most job.MaxShards
	}
}

// matches reports whether the line is the given stretch. The end may differ.
func (l *line) matches(s *schedule, part plans.Stretch) bool {
	return l.schedule == s && l.from == bound(part.After) && l.paused == part.Paused && l.since == stampOf(part.Since)
}

// attachAfter attaches a line, which has no group, at its first slot after the given instant. It
// returns false if there is no such slot.
func (a *agenda) attachAfter(l *line, after time.Time) bool {
	return a.attach(l, l.schedule.Next(plans.Later(after, l.after())))
}

// attach puts a line, which has no group, into the group of the given slot. It does nothing, and
// returns false, if the line does not have that slot.
func (a *agenda) attach(l *line, next time.Time) bool {
	if next.IsZero() || l.endsBefore(next) {
		return false
	}
	key := groupKey{l.schedule, next.Unix(), l.paused}
	g := a.groups[key]
	switch {
	case l.job.suspended:
		g = &group{schedule: l.schedule, next: next, paused: l.paused, index: aside}
	case g == nil:
		g = &group{schedule: l.schedule, next: next, paused: l.paused}
		a.groups[key] = g
		heap.Push(&a.heap, g)
	}
	l.group, l.index = g, uint32(len(g.lines))
	g.lines = append(g.lines, l)
	return true
}

// detach removes a line from its group. If the group is then empty, detach removes it from the
// heap.
func (a *agenda) detach(l *line) {
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
		heap.Remove(&a.heap, g.index)
		delete(a.groups, g.key())
	}
}

// takeBack puts a returned slot back on the agenda. The agenda returns it again, with all later
// slots of its line. A range may have slots of several plans.
func (a *agenda) takeBack(s dueSlot) {
	if !s.isRange() {
		a.rewind(s.line, s.At)
		return
	}
	for _, l := range s.line.job.lines() {
		if first := l.schedule.Next(plans.Later(l.after(), s.At.Add(-time.Second))); !first.IsZero() && !first.After(s.Last) {
			a.rewind(l, first)
		}
	}
}

func (a *agenda) rewind(l *line, at time.Time) {
	if l.group != nil && !at.Before(l.group.next) {
		return
	}
	a.detach(l)
	if lines := l.job.lines(); a.attach(l, at) && !slices.Contains(lines, l) {
		younger := slices.IndexFunc(lines, func(other *line) bool { return other.from > l.from })
		if younger < 0 {
			younger = len(lines)
		}
		l.job.setLines(slices.Insert(lines, younger, l))
	}
}

// shorten ends the line where a newer plan or a pause begins.
func (a *agenda) shorten(l *line, until int64) {
	l.until = until
	if l.group != nil && l.endsBefore(l.group.next) {
		a.detach(l)
	}
}

// groupHeap is a container/heap of groups. The group that falls due first is on top.
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
