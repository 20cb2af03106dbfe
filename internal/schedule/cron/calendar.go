// Package cron computes the instants of schedules: cron expressions (expression.go, field.go),
// the wall times that they match (calendar.go, exclude.go), and the instants at which clocks
// show them (source.go). It has no clock, and the same input yields the same instants
// everywhere. job.Schedule is built on it.
package cron

import "time"

const (
	daySeconds = 86400

	// Slots lie between these instants, because RFC 3339 has years of four digits.
	FirstInstant = -62135596800 // 0001-01-01T00:00:00Z
	LastInstant  = 253402300799 // 9999-12-31T23:59:59Z
)

// calendar is the set of wall times that match a cron expression and no exclusion. It knows no
// zone. A wall time is what a clock on the wall shows, as the number of seconds since
// 1970-01-01 00:00 without any clock change.
type calendar struct {
	Fields
	Exclusions
	interval

	// days holds, for each month and day of month, the weekdays on which that date has a
	// wall time in the calendar. It ignores excluded dates. The search skips all other days
	// without looking at their minutes. February of leap years is month 0.
	days   [13][32]uint8
	months uint64 // the months that have such a day
}

// interval restricts a calendar to each n-th date. The zero value does not restrict it.
type interval struct {
	every int64 // n
	first int64 // the first such date since 1970-01-01, as a number of days
}

// inDays returns the month's index in calendar.days.
func inDays(year, month int) int {
	if month == 2 && daysIn(year, month) == 29 {
		return 0
	}
	return month
}

func newCalendar(f Fields, i interval, x Exclusions) *calendar {
	c := &calendar{Fields: f, Exclusions: x, interval: i}
	// Whether a date has a wall time left depends on the exclusions that match the date.
	// Few combinations of them occur.
	left := map[uint64]bool{}
	for index := range c.days {
		month, length := index, daysIn(1, index)
		if index == 0 {
			month, length = 2, 29
		}
		for day := 1; day <= length; day++ {
			weekdays := f.weekdays(length, month, day)
			for weekday := 0; weekday < 7 && len(x.expressions) > 0; weekday++ {
				active := x.active(length, month, day, weekday)
				if _, known := left[active]; !known {
					_, left[active] = c.nextTime(active, 0)
				}
				if !left[active] {
					weekdays &^= 1 << weekday
				}
			}
			if c.days[index][day] = weekdays; weekdays != 0 {
				c.months |= 1 << index
			}
		}
	}
	return c
}

// empty reports whether the calendar has no wall time.
func (c *calendar) empty() bool { return c.months == 0 }

// next returns the first wall time of the calendar at or after wall.
func (c *calendar) next(wall int64) (int64, bool) {
	if c.empty() {
		return 0, false
	}
	number, second := floorDiv(wall, daySeconds), int(floorMod(wall, daySeconds))
	if c.interval.every > 0 {
		return c.nextInInterval(number, second)
	}
	year, m, day := time.Unix(number*daySeconds, 0).UTC().Date()
	month, weekday := int(m), int(floorMod(number+4, 7)) // 1970-01-01 was a Thursday
	for number <= LastInstant/daySeconds+1 {
		index, length := inDays(year, month), daysIn(year, month)
		if c.days[index][day]>>weekday&1 == 1 && !c.dates[number] {
			if t, ok := c.nextTime(c.active(length, month, day, weekday), second); ok {
				return number*daySeconds + int64(t), true
			}
		}
		second = 0
		skip := 1
		if c.months>>index&1 == 0 {
			skip = length - day + 1
		}
		number, weekday, day = number+int64(skip), (weekday+skip)%7, day+skip
		if day > length {
			if day, month = 1, month+1; month > 12 {
				month, year = 1, year+1
			}
		}
	}
	return 0, false
}

// nextInInterval is next for a calendar with an interval, which looks at each n-th date alone.
func (c *calendar) nextInInterval(number int64, second int) (int64, bool) {
	if wait := floorMod(c.first-number, c.interval.every); wait > 0 {
		number, second = number+wait, 0
	}
	for ; number <= LastInstant/daySeconds+1; number += c.interval.every {
		year, m, day := time.Unix(number*daySeconds, 0).UTC().Date()
		month, weekday := int(m), int(floorMod(number+4, 7))
		if c.days[inDays(year, month)][day]>>weekday&1 == 1 && !c.dates[number] {
			if t, ok := c.nextTime(c.active(daysIn(year, month), month, day, weekday), second); ok {
				return number*daySeconds + int64(t), true
			}
		}
		second = 0
	}
	return 0, false
}

// nextTime returns the first second of the day, at or after from, that matches the expression
// and none of the active exclusions.
func (c *calendar) nextTime(active uint64, from int) (int, bool) {
	h0, m0, s0 := from/3600, from/60%60, from%60
	for h := nextBit(c.Hour, h0); h < 24; h = nextBit(c.Hour, h+1) {
		if h > h0 {
			m0, s0 = 0, 0
		}
		for m := nextBit(c.Minute, m0); m < 60; m = nextBit(c.Minute, m+1) {
			if m > m0 {
				s0 = 0
			}
			if s := nextBit(c.Second&^c.excludedSeconds(active, h, m), s0); s < 60 {
				return h*3600 + m*60 + s, true
			}
		}
	}
	return 0, false
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// floorDiv and floorMod round toward negative infinity, / and % toward zero.
func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

func floorMod(a, b int64) int64 { return (a%b + b) % b }
