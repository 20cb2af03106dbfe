package preview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Change is a change of the clocks, and what the schedule does there.
type Change struct {
	At time.Time

	// Forward reports whether wall times are skipped; otherwise some occur twice. These are the
	// wall times from From to To.
	Forward  bool
	From, To string
	By       time.Duration

	// Before and After are the abbreviations of the zone.
	Before, After string

	// Planned are the wall times of the schedule that are skipped, or occur twice, at most
	// maxPlanned: More counts the others.
	Planned []string
	More    int

	// Choices are what each value of the setting (dst_gap or dst_overlap) does. Same reports
	// whether all do the same.
	Setting string
	Choices []Choice
	Same    bool
}

// Choice is a value of dst_gap or dst_overlap.
type Choice struct {
	Value  string
	Chosen bool // the plan has this value

	// Slots are those around the change, at most maxPlanned: More counts the others.
	Slots []time.Time
	More  int
}

const (
	maxPlanned = 5
	maxChanges = 4

	// maxAround bounds the slots around a change that are counted: one in each second of the hour
	// before and the hour after.
	maxAround = 7200
)

// changes returns the clock changes within a year.
func changes(name string, p job.Plan, s *job.Schedule, from time.Time) (list []Change, err error) {
	if !p.Scheduled() {
		return nil, nil
	}
	end := from.AddDate(1, 0, 0)
	for at := from; len(list) < maxChanges; {
		next := Bound(at.In(s.Location()))
		if next.IsZero() || next.After(end) {
			break
		}
		c, changed, err := newChange(name, p, s.Location(), next)
		if err != nil {
			return nil, err
		}
		if changed {
			list = append(list, c)
		}
		at = next
	}
	return list, nil
}

// Bound returns an instant after t up to which t's zone keeps its offset and its name; they may
// stay the same after it too. Zero: the zone keeps them for ever.
func Bound(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if end.IsZero() || end.After(t) {
		return end
	}
	// On the last day of some leap years, ZoneBounds returns the beginning of that day
	// (golang/go#81583).
	year, month, day := t.UTC().Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC).In(t.Location())
}

// newChange describes the change at an instant. changed is false if only the abbreviation of the zone
// changes.
func newChange(name string, p job.Plan, zone *time.Location, at time.Time) (c Change, changed bool, err error) {
	beforeName, before := at.Add(-time.Second).In(zone).Zone()
	afterName, after := at.In(zone).Zone()
	by := time.Duration(after-before) * time.Second
	if by == 0 {
		return c, false, nil
	}
	// low and high are wall times, held as times in UTC.
	low, high := at.Add(time.Duration(before)*time.Second).UTC(), at.Add(time.Duration(after)*time.Second).UTC()
	c = Change{At: at.In(zone), Forward: by > 0, By: by.Abs(), Before: beforeName, After: afterName, Setting: "dst_gap"}
	values := []string{string(job.GapAfter), string(job.GapSkip)}
	if !c.Forward {
		low, high = high, low
		c.Setting, values = "dst_overlap", []string{string(job.RepeatFirst), string(job.RepeatSecond), string(job.RepeatBoth)}
	}
	c.From, c.To = clock(low), clock(high)
	if c.Planned, c.More, err = planned(name, p, low, high); err != nil {
		return c, true, err
	}
	c.Same = true
	for _, value := range values {
		one := Choice{Value: value}
		with := p
		if c.Forward {
			one.Chosen, with.DSTGap = string(p.DSTGap) == value, job.GapPolicy(value)
		} else {
			one.Chosen, with.DSTOverlap = string(p.DSTOverlap) == value, job.RepeatPolicy(value)
		}
		s, err := job.ParseSchedule(name, with)
		if err != nil {
			return c, true, err
		}
		// The policy decides only about slots between the last unambiguous wall time and the next
		// one.
		begin, end := at, at.Add(time.Second)
		if !c.Forward {
			begin, end = at.Add(-c.By), at.Add(c.By)
		}
		one.Slots, one.More = around(s, begin, end)
		c.Same = c.Same && (len(c.Choices) == 0 || one.More == c.Choices[0].More && slices.EqualFunc(one.Slots, c.Choices[0].Slots, time.Time.Equal))
		c.Choices = append(c.Choices, one)
	}
	return c, true, nil
}

// planned returns the wall times of the schedule from low to before high. They are the slots that
// the schedule would have in UTC.
func planned(name string, p job.Plan, low, high time.Time) (times []string, more int, err error) {
	p.Timezone = "UTC"
	s, err := job.ParseSchedule(name, p)
	if err != nil {
		return nil, 0, err
	}
	slots, more := around(s, low, high)
	return codec.Map(slots, clock), more, nil
}

// around returns the slots from begin to before end.
func around(s *job.Schedule, begin, end time.Time) (slots []time.Time, more int) {
	seen := 0
	for at := range s.Between(begin.Add(-time.Second), end.Add(-time.Second)) {
		if seen++; seen > maxAround {
			break
		}
		if len(slots) < maxPlanned {
			slots = append(slots, at.In(s.Location()))
		} else {
			more++
		}
	}
	return slots, more
}

// clock writes a wall time, with seconds only if they matter.
func clock(t time.Time) string {
	if t.Second() != 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

// Text says at which times the schedule runs.
func (c Choice) Text() string {
	return list(codec.Map(c.Slots, func(at time.Time) string { return clock(at) + " " + at.Format("MST") }), c.More)
}

// PlannedText lists the wall times.
func (c Change) PlannedText() string { return list(c.Planned, c.More) }

func list(times []string, more int) string {
	text := strings.Join(times, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
