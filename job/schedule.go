package job

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/cron"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

// Schedule computes the slots of one job. It depends only on the plan, the job's name and the
// time zone data in the program: it reads neither a clock nor the time zone files of the system.
// The instants that it returns are in UTC and whole seconds, in the years 1 to 9999. A Schedule
// is immutable, and safe for concurrent use.
type Schedule struct {
	source      cron.Source
	zone        *time.Location
	first, last int64 // the first and the last instant that may be a slot
	delay       time.Duration
	key         string
}

// ParseSchedule compiles a plan. Empty fields of the plan have their defaults. The job's name
// determines the number that H stands for, and the delay within Spread. Without a name, H is
// invalid.
//
// A plan that can never have a slot is invalid; a plan whose slots have all passed is valid.
// The Schedule of a job that has After, On or OnDemand has no slots. The error names each invalid
// field, quotes its value, and wraps ErrInvalid.
func ParseSchedule(name string, p Plan) (*Schedule, error) {
	p = p.WithDefaults()
	if p.startedOtherwise() {
		return parseWithoutSlots(name, p)
	}
	zone, zoneErr := tzdata.Load(p.Timezone)
	exclude, excludeErr := cron.ParseExclusions(p.Exclude)
	first, last, boundsErr := parseBounds(p.From, p.Until)
	delay, spreadErr := parseSpread(name, p.Spread)
	src, textErr := parseSource(name, p, zone, exclude)
	if err := errors.Join(textErr, zoneErr, checkPolicies(p), spreadErr, boundsErr, excludeErr); err != nil {
		return nil, err
	}
	s := &Schedule{source: src, zone: zone, first: first, last: last, delay: delay}
	if _, ok := s.next(cron.FirstInstant); !ok {
		return nil, fmt.Errorf("%w schedule %q: can never fire: %s", ErrInvalid, codec.Clip(p.Schedule), whyNever(src, exclude))
	}
	s.key = strings.Join([]string{src.Key(), exclude.String(), fmt.Sprint(first), fmt.Sprint(last), delay.String()}, "|")
	return s, nil
}

// Next returns the first slot after an instant, or the zero time if there is none.
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

// Delay returns how long after its instant each slot is due. It is less than the plan's
// Spread.
func (s *Schedule) Delay() time.Duration { return s.delay }

// Location returns the zone in which the schedule is read.
func (s *Schedule) Location() *time.Location { return s.zone }

// Key returns a text that identifies the slots and the Delay: schedules with equal keys have
// the same. Do not store it, since its form may change.
func (s *Schedule) Key() string { return s.key }

// Between yields the slots after the first instant, up to and including the second, in
// ascending order.
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

// Count returns the number of slots that Between yields. It takes less than a microsecond for
// each slot.
func (s *Schedule) Count(after, until time.Time) int {
	n := 0
	for range s.Between(after, until) {
		n++
	}
	return n
}

// Last returns the newest n slots that Between yields, in ascending order. It walks backward
// from until, so its cost depends on n and not on the length of the range.
func (s *Schedule) Last(after, until time.Time, n int) []time.Time {
	var slots []time.Time
	begin, end, step := clampInstant(after)+1, clampInstant(until), int64(1)
	for len(slots) < n {
		u, ok := s.previous(begin, end, step)
		if !ok {
			break
		}
		slots = append(slots, instant(u))
		// The next slot back is probably as far away as this one was: start at that distance.
		end, step = u-1, max(end-u, 1)
	}
	slices.Reverse(slots)
	return slots
}

// next returns the first slot at or after u.
func (s *Schedule) next(u int64) (int64, bool) {
	u = max(u, s.first)
	if u > s.last {
		return 0, false
	}
	u, ok := s.source.Next(u, s.last)
	return u, ok && u <= s.last
}

// previous returns the newest slot from begin to end. It calls next at growing distances from
// end, of which the first is step, until it finds a slot. Then it bisects.
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
	// There is a slot at low, and the newest one is not after end. Usually it is the one at low.
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

// clampInstant returns t in whole seconds, rounded down and clamped to the instants that slots
// may have. The lower bound is one second before the first such instant, so that Next, which
// returns a later slot than t, can return the first instant.
func clampInstant(t time.Time) int64 {
	return min(max(t.Unix(), cron.FirstInstant-1), cron.LastInstant)
}

// whyNever returns the reason why a plan has no slot.
func whyNever(src cron.Source, exclude cron.Exclusions) string {
	if cron.NeverMatches(src) {
		return "no year has such a date"
	}
	if exclude.None() {
		return "no slot is between from and until"
	}
	return "exclude leaves no slot"
}
