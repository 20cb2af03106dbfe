package verify

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// timeline is one job: its plans, and what is known of its slots.
type timeline struct {
	name  string
	entry *plans.Entry // nil: not in the registry

	// stretches are the parts of its plans that are judged, oldest first. The walk is at the
	// slot next of the current one.
	stretches []stretch
	current   int
	next      int64

	// slots is how many slots should exist up to the position of the walk. unrecorded are those of
	// them without a record.
	slots      int
	unrecorded instants

	// waiting are the slots with a message, and recent those with a young message. overdue are the
	// slots without a record whose message a worker should have received long ago.
	waiting, recent, overdue instants
	tokens                   map[string]bool // triggered runs that wait; true: overdue

	// missed are the recorded ranges of missed slots, and coming those whose messages still wait.
	missed, coming []span

	// reported are the slots, and reportedShards the shards, for which an event reported an outcome.
	reported       instants
	reportedShards map[job.Slot]bool

	// reopened are the slots that were reopened: earlier events do not count.
	reopened map[job.Slot]bool

	chain *chain // nil: the job comes after no others

	unsettled map[job.Slot]unsettled
	doubled   map[job.Slot]string
	early     map[job.Slot]string
}

// stretch is the slots of one schedule from first to last, both inclusive.
type stretch struct {
	schedule    *job.Schedule
	first, last int64
	young       int64 // slots from here on are too young to judge
}

type span struct{ first, last int64 }

func within(spans []span, unix int64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.first <= unix && unix <= s.last })
}

// unsettled is a record without an outcome.
type unsettled struct {
	state            job.State
	node             string
	started, retryAt time.Time
	due              time.Time
	queue            string
	shards           int // of a slot that is split
}

const never = math.MaxInt64

func newTimeline(name string, entry *plans.Entry) *timeline {
	return &timeline{
		name: name, entry: entry, next: never,
		unrecorded: instants{}, waiting: instants{}, recent: instants{}, overdue: instants{}, reported: instants{},
		reportedShards: map[job.Slot]bool{}, tokens: map[string]bool{}, unsettled: map[job.Slot]unsettled{}, doubled: map[job.Slot]string{}, early: map[job.Slot]string{}, reopened: map[job.Slot]bool{},
	}
}

// begin puts the walk before the first slot.
func (l *timeline) begin() {
	if len(l.stretches) > 0 {
		l.seek(l.stretches[0].first)
	}
}

// seek moves the walk to the first slot that is not before unix.
func (l *timeline) seek(unix int64) {
	for ; l.current < len(l.stretches); l.current++ {
		s := l.stretches[l.current]
		next := s.schedule.Next(time.Unix(max(unix, s.first)-1, 0))
		if !next.IsZero() && next.Unix() <= s.last {
			l.next = next.Unix()
			return
		}
	}
	l.next = never
}

// pass walks up to and including unix, and adds the slots that it passes to unrecorded.
func (l *timeline) pass(unix int64) {
	for l.next <= unix {
		l.unrecorded.add(l.next)
		l.slots++
		l.seek(l.next + 1)
	}
}

// end walks to the end. It removes from unrecorded the slots that a range of missed slots covers,
// and those that are too young to judge.
func (l *timeline) end() (missed, young int) {
	l.pass(never - 1)
	for unix := range l.unrecorded.all() {
		switch {
		case within(l.missed, unix):
			l.unrecorded.take(unix)
			missed++
		case l.young(unix) && !l.waiting.has(unix):
			l.unrecorded.take(unix)
			l.slots--
			young++
		}
	}
	return missed, young
}

// young reports whether the planned slot is too young to judge.
func (l *timeline) young(unix int64) bool {
	for _, s := range l.stretches {
		if s.first <= unix && unix <= s.last {
			return unix >= s.young
		}
	}
	return false
}

// waits reports whether there is a message for the slot.
func (l *timeline) waits(s job.Slot) bool {
	if s.Token != "" {
		_, ok := l.tokens[s.Token]
		return ok
	}
	return l.waiting.has(s.At.Unix())
}

// ended reports whether an event reported an outcome of the planned slot, or of this shard.
func (l *timeline) ended(s job.Slot) bool {
	if s.Shards > 0 {
		return l.reportedShards[s]
	}
	return l.reported.has(s.At.Unix())
}

// overlapping is how far two attempts may seem to overlap because of the clocks of two
// nodes.
const overlapping = time.Second

// endedTwice says why a slot ended more than once. Empty: it did not.
func (l *timeline) endedTwice(r job.Record) string {
	for i := 1; i < len(r.Attempts); i++ {
		a, b := r.Attempts[i-1], r.Attempts[i]
		switch {
		case a.Finished.IsZero():
		case a.Error == "" && !l.reopened[r.Slot]:
			return fmt.Sprintf("attempt %d was started after attempt %d had succeeded", b.Number, a.Number)
		case b.Started.Before(a.Finished.Add(-overlapping)):
			return fmt.Sprintf("attempt %d was started %v before attempt %d had ended", b.Number, a.Finished.Sub(b.Started), a.Number)
		}
	}
	if r.State == job.Succeeded && r.Slot.Token == "" && l.ended(r.Slot) {
		return "it succeeded, and an event reported another outcome before"
	}
	return ""
}

// instants is a set of instants in seconds since 1970. It has one word for each 64 seconds in
// which there is an instant. The zero value is empty and read-only.
type instants map[int64]uint64

func word(unix int64) (key int64, bit uint64) { return unix >> 6, 1 << (unix & 63) }

func (s instants) add(unix int64) {
	key, bit := word(unix)
	s[key] |= bit
}

func (s instants) has(unix int64) bool {
	key, bit := word(unix)
	return s[key]&bit != 0
}

// take removes an instant, and reports whether it was in the set.
func (s instants) take(unix int64) bool {
	key, bit := word(unix)
	old := s[key]
	if old&bit == 0 {
		return false
	}
	if old &^= bit; old == 0 {
		delete(s, key)
	} else {
		s[key] = old
	}
	return true
}

// all yields the instants in ascending order. It may or may not yield instants that are taken
// while it runs.
func (s instants) all() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, key := range slices.Sorted(maps.Keys(s)) {
			for w := s[key]; w != 0; w &= w - 1 {
				if !yield(key<<6 + int64(bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
