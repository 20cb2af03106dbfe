package producer

import (
	"cmp"
	"container/heap"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// board knows every job and which of its slots have not been handed out yet. It
// is a plain data structure: no clock, no goroutine, no broker. Registry events
// go in, due slots come out.
//
// Invariant: a slot of a known job that is not before its line's next has not
// been handed out; every earlier one has been, or the base covers it.
type board struct {
	rules core.Lateness
	log   *slog.Logger

	// base is the watermark as last read: what it covers is never handed out.
	base position

	// cursor is the newest time up to which all that was due has been handed
	// out. It never goes back.
	cursor time.Time

	tasks     map[string]*task
	plans     job.Parser
	schedules map[string]*schedule
	groups    map[groupKey]*group
	heap      groupHeap

	// held are the tasks whose slots stay on the board although they are due, see hold.
	held map[*task]struct{}

	// manners are those of all jobs, and of some that there were: they are few.
	manners map[manner]*manner

	// known is the registry's newest revision and timestamp that were seen. settled
	// is what may be claimed: what was known when nothing was missing. A claim under
	// an older revision is always right, but has more slots offered again.
	known, settled position
	ready          bool

	// digest is of all definitions as they are known: two boards with the same
	// one have the same jobs at the same revisions, and make the same of them.
	digest uint64

	// newer names the jobs whose definitions only a newer program can read:
	// their slots may be published by others, but not vouched for by us.
	newer map[string]struct{}

	// zoned counts the tasks with a plan in a time zone other than UTC. zonesBehind is
	// true while another producer has newer time zone data.
	zoned       int
	zonesBehind bool
}

// task is a job as the board keeps it.
type task struct {
	def *definition

	// first is the oldest of the task's lines, see lines. Nil: there are none.
	first *line

	// digest is the task's part in the board's.
	digest uint64

	// held tasks hand out nothing.
	held bool

	// zoned tasks have a plan in a time zone other than UTC.
	zoned bool

	// seen is the timestamp of the entry that the task was made from: stretches
	// no newer than that have been on the board.
	seen stamp
}

// lines are the stretches of the job's timeline, oldest first, that have slots to
// come or had some. Nearly all jobs have one, and a slice for it would cost each of
// them 24 bytes.
func (t *task) lines() []*line {
	var lines []*line
	for l := t.first; l != nil; l = l.later {
		lines = append(lines, l)
	}
	return lines
}

func (t *task) setLines(lines []*line) {
	t.first = nil
	for _, l := range slices.Backward(lines) {
		t.first, l.later = l, t.first
	}
}

// definition is what a slot's message says about its job. It is immutable: a
// slot that waits keeps the one it was computed from.
type definition struct {
	name     string
	payload  string
	revision uint64
	*manner
}

// manner is what many jobs have alike. It is shared.
type manner struct {
	queue   string
	catchUp job.CatchUp
}

// stamp is a broker's timestamp, in nanoseconds since 1970; zero: none. A board of a
// million jobs has two million of them, and a time.Time is three times as large.
type stamp int64

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	return stamp(t.UnixNano())
}

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(s)).UTC()
}

func newBoard(rules core.Lateness, base position, log *slog.Logger) *board {
	return &board{
		rules: rules, log: log, base: base, cursor: base.time,
		tasks:     map[string]*task{},
		schedules: map[string]*schedule{},
		groups:    map[groupKey]*group{},
		manners:   map[manner]*manner{},
		held:      map[*task]struct{}{},
		newer:     map[string]struct{}{},
	}
}

// apply takes in one change of the registry, heard of at now.
func (b *board) apply(ev core.RegistryEvent, now time.Time) {
	b.known.revision = max(b.known.revision, ev.Revision)
	switch {
	case ev.Ready, ev.Settled:
		b.ready, b.settled = b.ready || ev.Ready, b.known
		return
	case ev.Deleted:
		b.remove(ev.Name, cmp.Or(ev.Time, now)) // a key that was collected leaves no time
	case ev.Err != nil:
		b.disable(ev)
	default:
		b.put(ev.Entry)
	}
	b.known.registry = later(b.known.registry, later(ev.Time, ev.Entry.Time))
}

// remove takes a job off the board that was removed from the registry at the
// given time. What fell due before is handed out all the same, again if need be:
// it was there, and has a right to its outcome.
func (b *board) remove(name string, at time.Time) {
	if t := b.tasks[name]; t != nil {
		b.end(t.lines(), at)
		b.digest -= t.digest
		b.setZoned(t, false)
	}
	delete(b.tasks, name)
	delete(b.newer, name)
}

// disable takes a job whose definition cannot be read off the board, and this
// job only. What was seen of it stays, for when it is mended.
func (b *board) disable(ev core.RegistryEvent) {
	t := b.task(ev.Name)
	if t.def != nil && t.def.revision == ev.Revision {
		return
	}
	b.log.Error("a job is disabled: its definition cannot be used", "job", ev.Name, "err", ev.Err)
	b.end(t.lines(), ev.Time)
	b.digest -= t.digest
	b.setZoned(t, false)
	t = &task{def: &definition{name: ev.Name, revision: ev.Revision, manner: &manner{}}, seen: t.seen}
	b.tasks[ev.Name] = t
	b.count(t, ev.Time, true)
	delete(b.newer, ev.Name)
	if errors.Is(ev.Err, job.ErrVersion) {
		b.newer[ev.Name] = struct{}{}
	}
}

// task is the named task, made if need be.
func (b *board) task(name string) *task {
	t := b.tasks[name]
	if t == nil {
		t = &task{}
		b.tasks[name] = t
	}
	return t
}

// put takes in a definition. Lines of plans that it still has go on as they are.
func (b *board) put(e core.Entry) {
	t := b.task(e.Job.Name)
	if t.def != nil && t.def.revision == e.Revision && t.seen == stampOf(e.Time) {
		return
	}
	delete(b.newer, e.Job.Name)
	b.setZoned(t, slices.ContainsFunc(e.Plans(), func(p core.PastPlan) bool { return p.Plan.Timezone != "" && p.Plan.Timezone != "UTC" }))
	j := e.Job.WithDefaults()
	t.def = &definition{j.Name, string(j.Payload), e.Revision, b.manner(manner{j.Queue, j.CatchUp})}
	old := t.lines()
	lines, broken := b.lines(t, old, e)
	gone := slices.DeleteFunc(old, func(l *line) bool { return slices.Contains(lines, l) })
	b.end(gone, e.Since())
	t.setLines(append(slices.DeleteFunc(gone, func(l *line) bool { return l.group == nil }), lines...))
	t.seen = stampOf(e.Time)
	b.digest -= t.digest
	b.count(t, e.Time, broken)
}

func (b *board) manner(m manner) *manner {
	shared := b.manners[m]
	if shared == nil {
		m.queue = strings.Clone(m.queue) // it may be a piece of something large
		shared = &m
		b.manners[m] = shared
	}
	return shared
}

// count adds the task's part to the digest: the revision that it was made from,
// by its timestamp too, since a bucket that was restored counts anew; and whether
// all of it could be used.
func (b *board) count(t *task, at time.Time, broken bool) {
	text := strconv.AppendUint(make([]byte, 0, 64), t.def.revision, 10)
	text = strconv.AppendInt(append(text, ' '), at.UnixNano(), 10)
	text = strconv.AppendBool(append(text, ' '), broken)
	t.digest = digest(t.def.name, string(text))
	b.digest += t.digest
}

// lines returns one line for each stretch of the entry's timeline that has slots
// to come. broken says that there are plans that cannot be used.
func (b *board) lines(t *task, old []*line, e core.Entry) (lines []*line, broken bool) {
	for _, p := range e.Plans() {
		s, err := b.schedule(e.Job.Name, p.Plan)
		if err != nil {
			b.log.Error("a plan of a job cannot be used", "job", e.Job.Name, "schedule", p.Plan.Schedule, "err", err)
			broken = true
			continue
		}
		s.lines++ // ours, as long as the loop below lasts: its first lines may end at once
		for _, part := range e.Stretches(p, s.Schedule) {
			if i := slices.IndexFunc(old, func(l *line) bool { return !l.ended && l.is(s, part) && !slices.Contains(lines, l) }); i >= 0 {
				b.shorten(old[i], bound(part.Until))
				lines = append(lines, old[i])
				continue
			}
			l := s.newLine(t, part)
			l.shards = uint16(p.Plan.Shards) // at most job.MaxShards
			if b.place(l, b.start(t, l, e.Revision)) {
				lines = append(lines, l)
			} else {
				b.release(l.schedule)
			}
		}
		b.release(s)
	}
	return lines, broken
}

// start is the instant after which the line's first slot is to be handed out.
func (b *board) start(t *task, l *line, revision uint64) time.Time {
	covered := time.Time{}
	switch {
	case l.since <= t.seen:
		covered = b.cursor
	case b.base.knows(revision, l.since.time()):
		covered = b.base.time
	}
	return later(l.after(), covered.Add(-l.schedule.Delay()))
}

// end cuts off lines that are of no job any more: what falls due after the given
// time is none of theirs.
func (b *board) end(lines []*line, at time.Time) {
	for _, l := range lines {
		b.shorten(l, min(l.until, at.Add(-l.schedule.Delay()).Unix()))
		if !l.ended {
			l.ended = true
			b.release(l.schedule)
		}
	}
}

// release gives up a share in a schedule. Two schedules of one key would be two
// plans: the lines of one would end, and their slots with them, where the other is
// put again.
func (b *board) release(s *schedule) {
	if s.lines--; s.lines == 0 {
		delete(b.schedules, s.key)
	}
}

// skip takes up a newer watermark: what it covers is not handed out any more.
func (b *board) skip(p position) {
	b.base = p
	var behind []*group
	for len(b.heap) > 0 && !b.heap[0].due().After(p.time) {
		g := heap.Pop(&b.heap).(*group)
		delete(b.groups, g.key())
		behind = append(behind, g)
	}
	for t := range b.held {
		for _, l := range t.lines() {
			if l.group != nil && !l.group.due().After(p.time) {
				behind = append(behind, l.group)
			}
		}
	}
	for _, g := range behind {
		covered := p.time.Add(-g.schedule.Delay())
		next := g.schedule.Next(covered)
		for _, l := range g.lines {
			l.group = nil
			if p.knows(l.task.def.revision, l.since.time()) {
				b.join(l, next)
			} else {
				b.join(l, g.next)
			}
		}
	}
	b.cursor = later(b.cursor, p.time)
}

// next is when the next slot falls due; false when none ever does.
func (b *board) next() (time.Time, bool) {
	if len(b.heap) == 0 {
		return time.Time{}, false
	}
	return b.heap[0].due(), true
}

// position is what may be claimed, once everything that was handed out is
// acknowledged, after due has said at now that this is all.
func (b *board) position(now time.Time) position {
	p := b.settled
	p.time = now
	return p
}

// setZoned notes whether the task has a plan in a time zone other than UTC.
func (b *board) setZoned(t *task, zoned bool) {
	if t.zoned {
		b.zoned--
	}
	if t.zoned = zoned; zoned {
		b.zoned++
	}
}

// vouches is false while another producer may know slots that this one does not: of a
// definition that only a newer program can read, or by newer time zone data. This one does
// not move the watermark then.
func (b *board) vouches() bool { return len(b.newer) == 0 && (b.zoned == 0 || !b.zonesBehind) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
