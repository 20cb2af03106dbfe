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

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// agenda knows every job and which of its slots it has not returned yet. It is a plain data
// structure without a clock, a goroutine or a broker: registry events go in, due slots come
// out.
//
// Invariant: the next slot of a line's group is the first slot of the line that has not been
// returned. Every earlier slot has been returned, or the base covers it.
type agenda struct {
	horizon time.Duration // how old a slot may be and still run
	log     *slog.Logger

	// base is the watermark as last read. The agenda never returns a slot that base covers.
	base position

	// cursor is the newest time up to which the agenda has returned all due slots, or the base
	// covers them. It never goes back.
	cursor time.Time

	jobs      map[string]*plannedJob
	parser    plans.Parser
	schedules map[string]*schedule
	groups    map[groupKey]*group
	heap      groupHeap

	// suspended are the jobs whose due slots stay on the agenda, see suspend.
	suspended map[*plannedJob]struct{}

	// traits holds each distinct traits value of all present and removed jobs once. There are
	// few.
	traits map[traits]*traits

	// known is the newest revision and timestamp of the registry that the agenda has seen.
	// settled is the value that known had when no registry event was pending. An older revision
	// in the watermark is safe: a producer that starts from it only publishes more slots a
	// second time.
	known, settled position
	ready          bool

	// digest covers all definitions. Two agendas with the same digest know the same jobs at
	// the same revisions, and compute the same slots.
	digest uint64

	// newer names the jobs whose definitions only a newer program can read. Other producers
	// may publish their slots; this one cannot know when they are published.
	newer map[string]struct{}

	// zoned counts the jobs with a plan in a time zone other than UTC. zonesBehind is what
	// Config.ZonesBehind returned in this turn.
	zoned       int
	zonesBehind bool
}

// plannedJob is a job on the agenda.
type plannedJob struct {
	def *definition

	// first is the oldest of the job's lines, see lines. Nil: it has none.
	first *line

	// digest is the job's part of the agenda's digest.
	digest uint64

	// A suspended job's due slots stay on the agenda.
	suspended bool

	// A zoned job has a plan in a time zone other than UTC.
	zoned bool

	// seen is the timestamp of the entry from which the lines were made. Stretches that came
	// into force by then have been on the agenda.
	seen stamp
}

// lines returns the job's lines, oldest first. Those whose slots were all returned may be among
// them. They are stored as a linked list: nearly all jobs have one line, and a slice would cost
// each of them 24 bytes.
func (j *plannedJob) lines() []*line {
	var lines []*line
	for l := j.first; l != nil; l = l.later {
		lines = append(lines, l)
	}
	return lines
}

func (j *plannedJob) setLines(lines []*line) {
	j.first = nil
	for _, l := range slices.Backward(lines) {
		j.first, l.later = l, j.first
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

func newAgenda(horizon time.Duration, base position, log *slog.Logger) *agenda {
	return &agenda{
		horizon: horizon, log: log, base: base, cursor: base.time,
		jobs:      map[string]*plannedJob{},
		schedules: map[string]*schedule{},
		groups:    map[groupKey]*group{},
		traits:    map[traits]*traits{},
		suspended: map[*plannedJob]struct{}{},
		newer:     map[string]struct{}{},
	}
}

// apply takes in one change of the registry, received at now.
func (a *agenda) apply(ev plans.RegistryEvent, now time.Time) {
	a.known.revision = max(a.known.revision, ev.Revision)
	switch {
	case ev.Ready, ev.Settled:
		a.ready, a.settled = a.ready || ev.Ready, a.known
		return
	case ev.Deleted:
		a.remove(ev.Name, cmp.Or(ev.Time, now)) // a removal that the bucket has compacted has no timestamp
	case ev.Err != nil:
		a.disable(ev)
	default:
		a.update(ev.Entry)
	}
	a.known.registryTime = plans.Later(a.known.registryTime, plans.Later(ev.Time, ev.Entry.Time))
}

// remove removes a job that was deleted from the registry at the given time. Slots that fell due
// before are still published, and retried: every slot that fell due gets an outcome.
func (a *agenda) remove(name string, at time.Time) {
	if j := a.jobs[name]; j != nil {
		a.endLines(j.lines(), at)
		a.digest -= j.digest
		a.setZoned(j, false)
	}
	delete(a.jobs, name)
	delete(a.newer, name)
}

// disable ends the lines of a job whose definition cannot be read. Slots that fell due before
// are still published. The job keeps its field seen, so that the agenda does not return them
// again when a later definition can be read.
func (a *agenda) disable(ev plans.RegistryEvent) {
	j := a.jobNamed(ev.Name)
	if j.def != nil && j.def.revision == ev.Revision {
		return
	}
	a.log.Error("job disabled: its definition cannot be used", "job", ev.Name, "error", ev.Err)
	a.endLines(j.lines(), ev.Time)
	a.digest -= j.digest
	a.setZoned(j, false)
	j = &plannedJob{def: &definition{name: ev.Name, revision: ev.Revision, traits: &traits{}}, seen: j.seen}
	a.jobs[ev.Name] = j
	a.addDigest(j, ev.Time, true)
	delete(a.newer, ev.Name)
	if errors.Is(ev.Err, job.ErrVersion) {
		a.newer[ev.Name] = struct{}{}
	}
}

// jobNamed returns the named job, and creates it if necessary.
func (a *agenda) jobNamed(name string) *plannedJob {
	j := a.jobs[name]
	if j == nil {
		j = &plannedJob{}
		a.jobs[name] = j
	}
	return j
}

// update takes in a definition. A line continues if the job still has the line's plan.
func (a *agenda) update(e plans.Entry) {
	j := a.jobNamed(e.Job.Name)
	if j.def != nil && j.def.revision == e.Revision && j.seen == stampOf(e.Time) {
		return
	}
	delete(a.newer, e.Job.Name)
	a.setZoned(j, slices.ContainsFunc(e.Plans(), func(p plans.PastPlan) bool { return p.Plan.Timezone != "" && p.Plan.Timezone != "UTC" }))
	def := e.Job.WithDefaults()
	j.def = &definition{def.Name, string(def.Payload), e.Revision, a.shareTraits(traits{def.Queue, def.CatchUp})}
	old := j.lines()
	lines, broken := a.makeLines(j, old, e)
	gone := slices.DeleteFunc(old, func(l *line) bool { return slices.Contains(lines, l) })
	a.endLines(gone, e.Since())
	j.setLines(append(slices.DeleteFunc(gone, func(l *line) bool { return l.group == nil }), lines...))
	j.seen = stampOf(e.Time)
	a.digest -= j.digest
	a.addDigest(j, e.Time, broken)
}

func (a *agenda) shareTraits(m traits) *traits {
	shared := a.traits[m]
	if shared == nil {
		m.queue = strings.Clone(m.queue) // the name may be a slice of a large text
		shared = &m
		a.traits[m] = shared
	}
	return shared
}

// addDigest adds the job to the agenda's digest. It hashes the revision and the timestamp of the
// job's entry, and whether all of the entry could be used. A restored bucket may count the same
// revisions again, so the timestamp is needed too.
func (a *agenda) addDigest(j *plannedJob, at time.Time, broken bool) {
	text := strconv.AppendUint(make([]byte, 0, 64), j.def.revision, 10)
	text = strconv.AppendInt(append(text, ' '), at.UnixNano(), 10)
	text = strconv.AppendBool(append(text, ' '), broken)
	j.digest = digest(j.def.name, string(text))
	a.digest += j.digest
}

// makeLines returns a line for each stretch of the entry's timeline that has slots to come. It
// reuses those of the old lines that match. broken is true if a plan of the entry cannot be used.
func (a *agenda) makeLines(j *plannedJob, old []*line, e plans.Entry) (lines []*line, broken bool) {
	for _, p := range e.Plans() {
		s, err := a.schedule(e.Job.Name, p.Plan)
		if err != nil {
			a.log.Error("plan of a job cannot be used", "job", e.Job.Name, "schedule", p.Plan.Schedule, "error", err)
			broken = true
			continue
		}
		s.uses++ // keeps the schedule while the loop runs: a line without slots releases it
		for _, part := range e.Stretches(p, s.Schedule) {
			if i := slices.IndexFunc(old, func(l *line) bool { return !l.ended && l.matches(s, part) && !slices.Contains(lines, l) }); i >= 0 {
				a.shorten(old[i], bound(part.Until))
				lines = append(lines, old[i])
				continue
			}
			l := s.newLine(j, part, p.Plan.Shards)
			if a.attachAfter(l, a.firstAfter(j, l, e.Revision)) {
				lines = append(lines, l)
			} else {
				a.release(s)
			}
		}
		a.release(s)
	}
	return lines, broken
}

// firstAfter returns the instant after which the line's first slot is to be returned.
func (a *agenda) firstAfter(j *plannedJob, l *line, revision uint64) time.Time {
	covered := time.Time{}
	switch {
	case l.since <= j.seen:
		covered = a.cursor
	case a.base.knows(revision, l.since.time()):
		covered = a.base.time
	}
	return plans.Later(l.after(), covered.Add(-l.schedule.Delay()))
}

// endLines ends lines that no job has any more: they have no slots due after the given
// time.
func (a *agenda) endLines(lines []*line, at time.Time) {
	for _, l := range lines {
		a.shorten(l, min(l.until, at.Add(-l.schedule.Delay()).Unix()))
		if !l.ended {
			l.ended = true
			a.release(l.schedule)
		}
	}
}

// release drops one use of the schedule, and deletes the schedule after the last. Lines are
// matched with plans by the schedule's pointer, so there must never be two schedules with one
// key.
func (a *agenda) release(s *schedule) {
	if s.uses--; s.uses == 0 {
		delete(a.schedules, s.key)
	}
}

// skipTo takes in a newer watermark: the agenda does not return the slots that it covers.
func (a *agenda) skipTo(p position) {
	a.base = p
	var behind []*group
	for len(a.heap) > 0 && !a.heap[0].due().After(p.time) {
		g := heap.Pop(&a.heap).(*group)
		delete(a.groups, g.key())
		behind = append(behind, g)
	}
	for j := range a.suspended {
		for _, l := range j.lines() {
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
			if p.knows(l.job.def.revision, l.since.time()) {
				a.attach(l, next)
			} else {
				a.attach(l, g.next)
			}
		}
	}
	a.cursor = plans.Later(a.cursor, p.time)
}

// next returns when the next slot falls due. It is false if no slot ever does.
func (a *agenda) next() (time.Time, bool) {
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.heap[0].due(), true
}

// position returns what the watermark may say when every returned slot is acknowledged. The caller
// has just learned from due that nothing due at now is left.
func (a *agenda) position(now time.Time) position {
	p := a.settled
	p.time = now
	return p
}

// setZoned notes whether the job has a plan in a time zone other than UTC.
func (a *agenda) setZoned(j *plannedJob, zoned bool) {
	if j.zoned {
		a.zoned--
	}
	if j.zoned = zoned; zoned {
		a.zoned++
	}
}

// canAdvance reports whether this producer may move the watermark. It may not if another
// producer may know slots that this one does not know: those of a definition that only a newer
// program can read, or those that newer time zone data adds.
func (a *agenda) canAdvance() bool { return len(a.newer) == 0 && (a.zoned == 0 || !a.zonesBehind) }
