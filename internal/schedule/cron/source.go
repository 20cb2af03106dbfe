package cron

import (
	"fmt"
	"math"
	"time"
)

// Source is one kind of schedule, without the plan's bounds and spread. Instants are seconds
// since 1970.
type Source interface {
	// Next returns the first slot at or after u. It may give up after last.
	Next(u, last int64) (int64, bool)
	// Key returns the same text only for sources with the same slots, exclusions aside.
	Key() string
}

// Gap decides about a wall time that a clock change skips, as job.GapPolicy describes. Any
// other value than gapSkip moves the slot to the first instant after the gap.
type Gap string

const gapSkip Gap = "skip"

// Repeat decides about a wall time that occurs twice, as job.RepeatPolicy describes.
type Repeat string

const (
	repeatFirst  Repeat = "first"
	repeatSecond Repeat = "second"
	repeatBoth   Repeat = "both"
)

// Setting is what decides about the slots of an expression besides its text.
type Setting struct {
	Zone    *time.Location
	Gap     Gap
	Repeat  Repeat
	Exclude Exclusions

	// From is the instant from which intervals count. Zero: 1970-01-01T00:00:00Z, or none for an
	// interval in days.
	From int64
}

// Source returns the slots of the expression.
func (e Expression) Source(s Setting) Source {
	switch {
	case e.At != nil:
		return onceSource{*e.At, s.Zone, s.Exclude}
	case e.Every > 0:
		return newEverySource(e.Every, s)
	case e.Days > 0:
		fields, interval := e.fromDate(s)
		return newWallSource(fields, interval, s)
	case e.elapsed:
		s.Gap, s.Repeat = gapSkip, repeatBoth
	}
	return newWallSource(*e.Fields, interval{}, s)
}

// fromDate returns the time of day and the dates of an interval in days, which are those of s.From on
// the clock of the zone.
func (e Expression) fromDate(s Setting) (Fields, interval) {
	wall := s.From + offsetAt(s.Zone, s.From)
	second := floorMod(wall, daySeconds)
	f := Everything
	f.Hour, f.Minute, f.Second = 1<<(second/3600), 1<<(second/60%60), 1<<(second%60)
	return f, interval{every: e.Days, first: floorMod(floorDiv(wall, daySeconds), e.Days)}
}

// NeverMatches reports whether no year has a date that the source's cron expression matches.
func NeverMatches(s Source) bool {
	w, ok := s.(*wallSource)
	return ok && w.pattern.empty()
}

// wallSource maps the wall times of a calendar to instants.
type wallSource struct {
	zone   *time.Location
	gap    Gap
	repeat Repeat
	// pattern holds the wall times of the expression, open those that are not excluded. A
	// gap needs both: the planned wall time decides whether there is a slot, and the wall
	// time after the gap whether it is excluded.
	pattern, open *calendar
}

func newWallSource(f Fields, i interval, s Setting) *wallSource {
	w := &wallSource{zone: s.Zone, gap: s.Gap, repeat: s.Repeat, pattern: newCalendar(f, i, Exclusions{})}
	w.open = w.pattern
	if !s.Exclude.None() {
		w.open = newCalendar(f, i, s.Exclude)
	}
	return w
}

// Next walks from one span of constant offset to the next. Within a span, wall times are
// instants plus the offset. The policies decide which wall times count at its two ends. The
// walk begins two days before u, to learn which wall times the clocks have already shown; no
// zone has ever shifted by more than one day.
func (w *wallSource) Next(u, last int64) (int64, bool) {
	const unknown = math.MinInt64
	seen := int64(unknown) // the clocks have shown all wall times before this one
	exhausted := false     // no later wall time is open
	for s := spanFrom(w.zone, u-2*daySeconds); s.start <= last; s = spanFrom(w.zone, s.end) {
		begin, end := s.start+s.offset, s.end+s.offset
		if seen != unknown && w.fallsIntoGap(seen, begin) && s.start >= u {
			return s.start, true
		}
		low, high := max(begin, u+s.offset), end
		switch w.repeat {
		case repeatFirst:
			low = max(low, seen)
		case repeatSecond:
			high = min(high, s.end+s.after)
		}
		if low < high && !exhausted {
			wall, ok := w.open.next(low)
			if ok && wall < high {
				return wall - s.offset, true
			}
			exhausted = !ok
		}
		seen = max(seen, end)
	}
	return 0, false
}

// fallsIntoGap reports whether a planned wall time lies in the gap from begin to end, so that
// the first instant after the gap, at which the clocks show end, is a slot.
func (w *wallSource) fallsIntoGap(begin, end int64) bool {
	if w.gap == gapSkip || begin >= end || w.open.match(end) {
		return false
	}
	planned, ok := w.pattern.next(begin)
	return ok && planned < end
}

func (w *wallSource) Key() string {
	return fmt.Sprintf("wall %s %v %s %s %s", w.pattern.Fields, w.pattern.interval, w.zone, w.gap, w.repeat)
}

// everySource counts periods from an instant. Clock changes do not affect it.
type everySource struct {
	period int64
	first  int64          // the first period after 1970-01-01T00:00:00Z begins at this second
	zone   *time.Location // of the exclusions
	open   *calendar      // the wall times that are not excluded; nil: all
}

// maxExcludedPeriods bounds the search for a period that is not excluded, so that it takes some
// tenths of a second at most. The search skips excluded days, so it reaches the bound only if so many
// periods in a row are excluded on days that are not excluded as a whole.
const maxExcludedPeriods = 1 << 20

func newEverySource(period int64, s Setting) everySource {
	e := everySource{period: period, first: floorMod(s.From, period), zone: s.Zone}
	if !s.Exclude.None() {
		e.open = newCalendar(Everything, interval{}, s.Exclude)
	}
	return e
}

func (e everySource) Next(u, last int64) (int64, bool) {
	for range maxExcludedPeriods {
		u += floorMod(e.first-u, e.period)
		if e.open == nil {
			return u, true
		}
		offset := offsetAt(e.zone, u)
		wall, ok := e.open.next(u + offset)
		if ok && wall == u+offset {
			return u, true
		}
		if !ok || u > last {
			break
		}
		// Go to the next wall time that is open, or to the next clock change.
		u = max(u+1, min(wall-offset, constantUntil(e.zone, u)))
	}
	return 0, false
}

func (e everySource) Key() string { return fmt.Sprintf("every %d %d %s", e.period, e.first, e.zone) }

// onceSource has a single slot.
type onceSource struct {
	at      int64
	zone    *time.Location // of the exclusions
	exclude Exclusions
}

func (o onceSource) Next(u, _ int64) (int64, bool) {
	return o.at, u <= o.at && !o.exclude.match(o.at+offsetAt(o.zone, o.at))
}

func (o onceSource) Key() string { return fmt.Sprintf("at %d %s", o.at, o.zone) }

// span is a range of instants, from start to before end, with a constant offset from UTC.
// after is the offset from end on.
type span struct {
	start, end    int64
	offset, after int64
}

// spanFrom returns the span that begins at start. The offset need not change there.
func spanFrom(loc *time.Location, start int64) span {
	s := span{start: start, end: constantUntil(loc, start), offset: offsetAt(loc, start)}
	s.after = s.offset
	// Skip bounds at which the offset stays: only the zone's name changes, or a year of the
	// rule for the far future ends. At most three occur in a row.
	for range 4 {
		if s.end > LastInstant {
			break
		}
		if s.after = offsetAt(loc, s.end); s.after != s.offset {
			break
		}
		s.end = constantUntil(loc, s.end)
	}
	return s
}

func offsetAt(loc *time.Location, u int64) int64 {
	_, offset := time.Unix(u, 0).In(loc).Zone()
	return int64(offset)
}

// constantUntil returns an instant after u up to which the offset is constant. It is not
// always the last such instant.
func constantUntil(loc *time.Location, u int64) int64 {
	_, bound := time.Unix(u, 0).In(loc).ZoneBounds()
	if bound.IsZero() {
		return LastInstant + 1
	}
	if end := bound.Unix(); end > u {
		return end
	}
	// On the last day of some leap years, ZoneBounds returns the beginning of that day
	// (golang/go#81583). The offset does not change before the year ends.
	return (floorDiv(u, daySeconds) + 1) * daySeconds
}
