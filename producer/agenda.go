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

// agenda knows every job and which of its slots it has not returned yet. It is a plain data
// structure without a clock, a goroutine or a broker: registry events go in, due slots come
// out.
//
// Invariant: a line's group stands at the first slot of the line that has not been returned.
// Every earlier slot has been returned, or the base covers it.
type agenda struct {
	rules core.Lateness
	log   *slog.Logger

	// base is the watermark as last read. The agenda never returns a slot that base covers.
	base position

	// cursor is the newest time up to which the agenda has returned all due slots, or the base
	// covers them. It never goes back.
	cursor time.Time

	tasks     map[string]*task
	plans     core.Parser
	schedules map[string]*schedule
	groups    map[groupKey]*group
	heap      groupHeap

	// suspended are the tasks whose due slots stay on the agenda, see suspend.
	suspended map[*task]struct{}

	// traits are those of all present and former jobs. They are few.
	traits map[traits]*traits

	// known is the newest revision and timestamp of the registry that the agenda has seen.
	// claimable is the value that known had at the last event after which no other event was
	// pending. To claim an older revision is always right, but makes a starting producer
	// publish more slots again.
	known, claimable position
	ready            bool

	// digest covers all definitions. Two agendas with the same digest have the same jobs at
	// the same revisions, and compute the same slots.
	digest uint64

	// newer names the jobs whose definitions only a newer program can read. Other producers
	// may publish their slots; this one cannot claim them.
	newer map[string]struct{}

	// zoned counts the tasks with a plan in a time zone other than UTC. zonesBehind is
	// true while another producer has newer time zone data.
	zoned       int
	zonesBehind bool
}

// task is a job on the agenda.
type task struct {
	def *definition

	// first is the oldest of the task's lines, see lines. Nil: it has none.
	first *line

	// digest is the task's part of the agenda's digest.
	digest uint64

	// A suspended task's due slots stay on the agenda.
	suspended bool

	// A zoned task has a plan in a time zone other than UTC.
	zoned bool

	// seen is the timestamp of the entry from which the task was made. Stretches that are
	// no newer have been on the agenda.
	seen stamp
}

// lines returns the stretches of the job's timeline that have slots to come, or had some,
// oldest first. Nearly all jobs have one line; a slice in the task would cost each of them
// 24 bytes.
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

// definition is what a slot's message says about its job. It is immutable: an
// unacknowledged slot keeps the definition from which it was computed.
type definition struct {
	name     string
	payload  string
	revision uint64
	*traits
}

// traits is what many jobs have in common. Their definitions share it.
type traits struct {
	queue   string
	catchUp job.CatchUp
}

// stamp is a timestamp of the broker in nanoseconds since 1970; zero: none. An agenda of a
// million jobs has two million stamps, and a time.Time is three times as large.
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

func newAgenda(rules core.Lateness, base position, log *slog.Logger) *agenda {
	return &agenda{
		rules: rules, log: log, base: base, cursor: base.time,
		tasks:     map[string]*task{},
		schedules: map[string]*schedule{},
		groups:    map[groupKey]*group{},
		traits:    map[traits]*traits{},
		suspended: map[*task]struct{}{},
		newer:     map[string]struct{}{},
	}
}

// apply takes in one change of the registry, received at now.
func (b *agenda) apply(ev core.RegistryEvent, now time.Time) {
	b.known.revision = max(b.known.revision, ev.Revision)
	switch {
	case ev.Ready, ev.Settled:
		b.ready, b.claimable = b.ready || ev.Ready, b.known
		return
	case ev.Deleted:
		b.remove(ev.Name, cmp.Or(ev.Time, now)) // the key of a compacted removal has no time
	case ev.Err != nil:
		b.disable(ev)
	default:
		b.update(ev.Entry)
	}
	b.known.registry = later(b.known.registry, later(ev.Time, ev.Entry.Time))
}

// remove removes a job that was deleted from the registry at the given time. Slots that
// fell due before are still published, again if necessary: they have a right to an outcome.
func (b *agenda) remove(name string, at time.Time) {
	if t := b.tasks[name]; t != nil {
		b.endLines(t.lines(), at)
		b.digest -= t.digest
		b.setZoned(t, false)
	}
	delete(b.tasks, name)
	delete(b.newer, name)
}

// disable removes the slots of a job whose definition cannot be read. The task keeps its
// timestamp for a later definition that can be read.
func (b *agenda) disable(ev core.RegistryEvent) {
	t := b.task(ev.Name)
	if t.def != nil && t.def.revision == ev.Revision {
		return
	}
	b.log.Error("job disabled: its definition cannot be used", "job", ev.Name, "error", ev.Err)
	b.endLines(t.lines(), ev.Time)
	b.digest -= t.digest
	b.setZoned(t, false)
	t = &task{def: &definition{name: ev.Name, revision: ev.Revision, traits: &traits{}}, seen: t.seen}
	b.tasks[ev.Name] = t
	b.addDigest(t, ev.Time, true)
	delete(b.newer, ev.Name)
	if errors.Is(ev.Err, job.ErrVersion) {
		b.newer[ev.Name] = struct{}{}
	}
}

// task returns the named task, and creates it if necessary.
func (b *agenda) task(name string) *task {
	t := b.tasks[name]
	if t == nil {
		t = &task{}
		b.tasks[name] = t
	}
	return t
}

// update takes in a definition. Lines of plans that the job still has continue.
func (b *agenda) update(e core.Entry) {
	t := b.task(e.Job.Name)
	if t.def != nil && t.def.revision == e.Revision && t.seen == stampOf(e.Time) {
		return
	}
	delete(b.newer, e.Job.Name)
	b.setZoned(t, slices.ContainsFunc(e.Plans(), func(p core.PastPlan) bool { return p.Plan.Timezone != "" && p.Plan.Timezone != "UTC" }))
	j := e.Job.WithDefaults()
	t.def = &definition{j.Name, string(j.Payload), e.Revision, b.shareTraits(traits{j.Queue, j.CatchUp})}
	old := t.lines()
	lines, broken := b.lines(t, old, e)
	gone := slices.DeleteFunc(old, func(l *line) bool { return slices.Contains(lines, l) })
	b.endLines(gone, e.Since())
	t.setLines(append(slices.DeleteFunc(gone, func(l *line) bool { return l.group == nil }), lines...))
	t.seen = stampOf(e.Time)
	b.digest -= t.digest
	b.addDigest(t, e.Time, broken)
}

func (b *agenda) shareTraits(m traits) *traits {
	shared := b.traits[m]
	if shared == nil {
		m.queue = strings.Clone(m.queue) // the name may be a slice of a large text
		shared = &m
		b.traits[m] = shared
	}
	return shared
}

// addDigest adds the task to the digest: the revision and timestamp of its entry, since a
// restored bucket counts its revisions anew, and whether all of the entry could be used.
func (b *agenda) addDigest(t *task, at time.Time, broken bool) {
	text := strconv.AppendUint(make([]byte, 0, 64), t.def.revision, 10)
	text = strconv.AppendInt(append(text, ' '), at.UnixNano(), 10)
	text = strconv.AppendBool(append(text, ' '), broken)
	t.digest = digest(t.def.name, string(text))
	b.digest += t.digest
}

// lines returns a line for each stretch of the entry's timeline that has slots to come.
// broken reports whether a plan of the entry cannot be used.
func (b *agenda) lines(t *task, old []*line, e core.Entry) (lines []*line, broken bool) {
	for _, p := range e.Plans() {
		s, err := b.schedule(e.Job.Name, p.Plan)
		if err != nil {
			b.log.Error("plan of a job cannot be used", "job", e.Job.Name, "schedule", p.Plan.Schedule, "error", err)
			broken = true
			continue
		}
		s.lines++ // keeps the schedule while the loop runs, since its first lines may end at once
		for _, part := range e.Stretches(p, s.Schedule) {
			if i := slices.IndexFunc(old, func(l *line) bool { return !l.ended && l.matches(s, part) && !slices.Contains(lines, l) }); i >= 0 {
				b.shorten(old[i], bound(part.Until))
				lines = append(lines, old[i])
				continue
			}
			l := s.newLine(t, part)
			l.shards = uint16(p.Plan.Shards) // at most job.MaxShards
			if b.attachAfter(l, b.firstAfter(t, l, e.Revision)) {
				lines = append(lines, l)
			} else {
				b.release(l.schedule)
			}
		}
		b.release(s)
	}
	return lines, broken
}

// firstAfter returns the instant after which the line's first slot is to be returned.
func (b *agenda) firstAfter(t *task, l *line, revision uint64) time.Time {
	covered := time.Time{}
	switch {
	case l.since <= t.seen:
		covered = b.cursor
	case b.base.knows(revision, l.since.time()):
		covered = b.base.time
	}
	return later(l.after(), covered.Add(-l.schedule.Delay()))
}

// endLines ends lines that no job has any more: they have no slots due after the given
// time.
func (b *agenda) endLines(lines []*line, at time.Time) {
	for _, l := range lines {
		b.shorten(l, min(l.until, at.Add(-l.schedule.Delay()).Unix()))
		if !l.ended {
			l.ended = true
			b.release(l.schedule)
		}
	}
}

// release removes one line from the schedule's count, and deletes the schedule with the
// last. Lines find their plan by the schedule's pointer, so there must never be two
// schedules with one key.
func (b *agenda) release(s *schedule) {
	if s.lines--; s.lines == 0 {
		delete(b.schedules, s.key)
	}
}

// skipTo takes in a newer watermark: the agenda does not return the slots that it covers.
func (b *agenda) skipTo(p position) {
	b.base = p
	var behind []*group
	for len(b.heap) > 0 && !b.heap[0].due().After(p.time) {
		g := heap.Pop(&b.heap).(*group)
		delete(b.groups, g.key())
		behind = append(behind, g)
	}
	for t := range b.suspended {
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
				b.attach(l, next)
			} else {
				b.attach(l, g.next)
			}
		}
	}
	b.cursor = later(b.cursor, p.time)
}

// next returns when the next slot falls due. It is false if no slot ever does.
func (b *agenda) next() (time.Time, bool) {
	if len(b.heap) == 0 {
		return time.Time{}, false
	}
	return b.heap[0].due(), true
}

// position returns what may be claimed when every returned slot is acknowledged. The caller
// has just learned from due that nothing due at now is left.
func (b *agenda) position(now time.Time) position {
	p := b.claimable
	p.time = now
	return p
}

// setZoned notes whether the task has a plan in a time zone other than UTC.
func (b *agenda) setZoned(t *task, zoned bool) {
	if t.zoned {
		b.zoned--
	}
	if t.zoned = zoned; zoned {
		b.zoned++
	}
}

// canClaim reports whether this producer may move the watermark. It may not while another
// producer may know slots that this one does not: of a definition that only a newer program
// can read, or by newer time zone data.
func (b *agenda) canClaim() bool { return len(b.newer) == 0 && (b.zoned == 0 || !b.zonesBehind) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
