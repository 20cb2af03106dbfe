package job

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/tzdata"
)

// Schedule computes the slots of one job. It is immutable and safe for
// concurrent use. All instants it returns are in UTC and whole seconds, in the
// years 1 to 9999.
type Schedule struct {
	source      source
	zone        *time.Location
	first, last int64 // the bounds, both inclusive
	delay       time.Duration
	key         string
}

// ParseSchedule compiles the plan of the job called name, which H and spread
// hash; an empty name refuses H. Empty fields of the plan stand for their
// defaults. A plan that has no slot at any time is refused, unless something else
// starts its job; one that has none any more is not. The error names all that is wrong, wraps ErrInvalid and
// quotes the bad input.
func ParseSchedule(name string, p Plan) (*Schedule, error) {
	p = p.WithDefaults()
	if p.started() {
		return parseStarted(name, p)
	}
	zone, zoneErr := tzdata.Load(p.Timezone)
	exclude, excludeErr := parseExclusions(p.Exclude)
	first, last, boundsErr := parseBounds(p.From, p.Until)
	delay, spreadErr := parseSpread(name, p.Spread)
	src, textErr := parseSource(name, p, zone, exclude)
	if err := errors.Join(textErr, zoneErr, checkPolicies(p), spreadErr, boundsErr, excludeErr); err != nil {
		return nil, err
	}
	s := &Schedule{source: src, zone: zone, first: first, last: last, delay: delay}
	if _, ok := s.next(firstInstant); !ok {
		return nil, fmt.Errorf("%w schedule %q: can never fire: %s", ErrInvalid, codec.Clip(p.Schedule), whyNever(src, exclude))
	}
	s.key = strings.Join([]string{src.key(), exclude.String(), fmt.Sprint(first), fmt.Sprint(last), delay.String()}, "|")
	return s, nil
}

// Next is the first slot strictly after t; zero when there is none any more. It
// depends on nothing but the schedule and t.
func (s *Schedule) Next(after time.Time) time.Time {
	u, ok := s.next(clampInstant(after) + 1)
	if !ok {
		return time.Time{}
	}
	return instant(u)
}

// Includes reports whether t is a slot.
func (s *Schedule) Includes(t time.Time) bool {
	u, ok := s.next(t.Unix())
	return ok && u == t.Unix() && t.Nanosecond() == 0
}

// Delay is by how much spread puts off each slot's due time. The slot keeps its
// instant.
func (s *Schedule) Delay() time.Duration { return s.delay }

// Location is the zone in which the schedule reads the clock.
func (s *Schedule) Location() *time.Location { return s.zone }

// Key is the same for two schedules only if they have the same slots and the
// same Delay, whatever their jobs are called. It is for use within one process:
// its form may change.
func (s *Schedule) Key() string { return s.key }

// Between yields the slots after the first instant and up to the second,
// ascending.
func (s *Schedule) Between(after, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		end := clampInstant(until)
		for u, ok := s.next(clampInstant(after) + 1); ok && u <= end; u, ok = s.next(u + 1) {
			if !yield(instant(u)) {
				return
			}
		}
	}
}

// Count is the number of slots that Between yields. It walks them, at less than
// a microsecond each.
func (s *Schedule) Count(after, until time.Time) int {
	n := 0
	for range s.Between(after, until) {
		n++
	}
	return n
}

// Last is the newest n slots of Between, ascending. It walks backward from
// until, so its cost is that of n slots, however long the range is.
func (s *Schedule) Last(after, until time.Time, n int) []time.Time {
	var slots []time.Time
	begin, end, step := clampInstant(after)+1, clampInstant(until), int64(1)
	for len(slots) < n {
		u, ok := s.previous(begin, end, step)
		if !ok {
			break
		}
		slots = append(slots, instant(u))
		// A slot is about as far from the one before as from the one after.
		end, step = u-1, max(end-u, 1)
	}
	slices.Reverse(slots)
	return slots
}

// next is the first slot that is not before u.
func (s *Schedule) next(u int64) (int64, bool) {
	u = max(u, s.first)
	if u > s.last {
		return 0, false
	}
	u, ok := s.source.next(u, s.last)
	return u, ok && u <= s.last
}

// previous is the newest slot from begin to end. It asks next, which answers
// whether there is a slot from here on: first at growing distances from end,
// beginning with step, then by halving.
func (s *Schedule) previous(begin, end, step int64) (int64, bool) {
	low, ok := s.next(begin)
	if !ok || low > end {
		return 0, false
	}
	for ; end-step > low; step *= 2 {
		if u, ok := s.next(end - step); ok && u <= end {
			low = u
			break
		}
		end -= step + 1
	}
	// There is a slot at low, and none between end and where we began. Most
	// often the one at low is the newest.
	if u, ok := s.next(low + 1); !ok || u > end {
		return low, true
	}
	for low < end {
		middle := low + (end-low+1)/2
		if u, ok := s.next(middle); ok && u <= end {
			low = u
		} else {
			end = middle - 1
		}
	}
	return low, true
}

func instant(u int64) time.Time { return time.Unix(u, 0).UTC() }

// clampInstant is t in whole seconds, rounded down, within a second of the years
// that slots may have.
func clampInstant(t time.Time) int64 { return min(max(t.Unix(), firstInstant-1), lastInstant) }

// whyNever says what leaves no slot.
func whyNever(src source, exclude exclusions) string {
	if w, ok := src.(*wallSource); ok && w.pattern.empty() {
		return "no year has such a date"
	}
	if exclude.none() {
		return "no slot lies in from..until"
	}
	return "exclude leaves no slot"
}
