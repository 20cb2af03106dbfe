package job

import (
	"fmt"
	"math"
	"time"
)

// source is one way to say when. Bounds and spread are the Schedule's.
type source interface {
	// next is the first slot that is not before u; none after last is asked for.
	next(u, last int64) (int64, bool)
	// key differs for sources that may differ in their slots, exclusions aside.
	key() string
}

// wallSource maps the wall times of a calendar to instants.
type wallSource struct {
	zone   *time.Location
	gap    GapPolicy
	repeat RepeatPolicy
	// pattern is the expression alone, open what the exclusions leave of it.
	// The two differ in a gap: there the wall time that was planned decides
	// whether there is a slot, the one that clocks show whether it is excluded.
	pattern, open *calendar
}

func newWallSource(f fieldSet, zone *time.Location, gap GapPolicy, repeat RepeatPolicy, exclude exclusions) *wallSource {
	w := &wallSource{zone: zone, gap: gap, repeat: repeat, pattern: newCalendar(f, exclusions{})}
	w.open = w.pattern
	if !exclude.none() {
		w.open = newCalendar(f, exclude)
	}
	return w
}

// next goes from one span of constant offset to the next. Within a span, instants
// and wall times are one number apart; the policies only say which wall times
// count at its two ends. It begins two days early, to learn what the clocks have
// shown before u: no zone has ever shifted by more than one.
func (w *wallSource) next(u, last int64) (int64, bool) {
	const unknown = math.MinInt64
	seen := int64(unknown) // the first wall time that no earlier instant has shown
	for s := spanFrom(w.zone, u-2*daySeconds); s.start <= last; s = spanFrom(w.zone, s.end) {
		begin, end := s.start+s.offset, s.end+s.offset
		if seen != unknown && w.fallsIntoGap(seen, begin) && s.start >= u {
			return s.start, true
		}
		low, high := max(begin, u+s.offset), end
		switch w.repeat {
		case RepeatFirst:
			low = max(low, seen)
		case RepeatSecond:
			high = min(high, s.end+s.after)
		}
		if low < high {
			if wall, ok := w.open.next(low); ok && wall < high {
				return wall - s.offset, true
			}
		}
		seen = max(seen, end)
	}
	return 0, false
}

// fallsIntoGap reports whether a planned wall time in a gap, from begin to end,
// makes the first instant after it a slot. The clocks show end then.
func (w *wallSource) fallsIntoGap(begin, end int64) bool {
	if w.gap == GapSkip || begin >= end || w.open.match(end) {
		return false
	}
	planned, ok := w.pattern.next(begin)
	return ok && planned < end
}

func (w *wallSource) key() string {
	return fmt.Sprintf("wall %s %s %s %s", w.pattern.fieldSet, w.zone, w.gap, w.repeat)
}

// everySource counts periods from 1970-01-01T00:00:00Z, whatever the clocks do.
type everySource struct {
	period int64
	zone   *time.Location // of the exclusions
	open   *calendar      // every wall time that is not excluded; nil: all
}

// maxExcludedPeriods bounds the search for a slot that the exclusions leave, to
// some tenths of a second. Only exclusions that hit every single one of so many
// periods, yet not a whole day, come to it.
const maxExcludedPeriods = 1 << 20

func newEverySource(period int64, zone *time.Location, exclude exclusions) everySource {
	e := everySource{period: period, zone: zone}
	if !exclude.none() {
		e.open = newCalendar(everything, exclude)
	}
	return e
}

func (e everySource) next(u, last int64) (int64, bool) {
	for range maxExcludedPeriods {
		u += floorMod(-u, e.period)
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
		// To the next wall time that is open, unless the clocks change before.
		u = max(u+1, min(wall-offset, constantUntil(e.zone, u)))
	}
	return 0, false
}

func (e everySource) key() string { return fmt.Sprintf("every %d %s", e.period, e.zone) }

// onceSource is a single instant.
type onceSource struct {
	at      int64
	zone    *time.Location // of the exclusions
	exclude exclusions
}

func (o onceSource) next(u, _ int64) (int64, bool) {
	return o.at, u <= o.at && !o.exclude.match(o.at+offsetAt(o.zone, o.at))
}

func (o onceSource) key() string { return fmt.Sprintf("at %d %s", o.at, o.zone) }
