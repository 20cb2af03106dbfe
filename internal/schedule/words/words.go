// Package words says in English when a job starts: "Monday to Friday at 07:00" for the
// expression "0 7 * * MON-FRI". It reads the sets of numbers that the scheduler itself uses, so
// the words agree with the slots as long as they describe every set.
package words

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/schedule/cron"
	"github.com/cronce-io/cronce/job"
)

// Of returns when a plan starts the job of this name, without its zone, bounds and exclusions. If
// the plan's schedule is invalid, it returns the schedule as it is.
func Of(name string, p job.Plan) string {
	if p.Schedule == job.OnDemand || len(p.After) > 0 || !p.On.IsZero() {
		return p.Start()
	}
	e, err := cron.Parse(name, p.Schedule)
	switch {
	case err != nil:
		return strings.TrimSpace(p.Schedule)
	case e.Every > 0:
		return "every " + length(time.Duration(e.Every)*time.Second)
	case e.Days > 0:
		return days(name, p, int(e.Days))
	case e.At != nil:
		return "once, on " + time.Unix(*e.At, 0).UTC().Format("2 January 2006 at 15:04:05") + " UTC"
	}
	return sentence(*e.Fields)
}

// This compiles only while cron.Fields has just the fields that sentence puts into words.
var _ = struct {
	Second, Minute, Hour uint64
	Day, Month, Weekday  uint64
	cron.RelativeDays
	Either bool
}(cron.Fields{})

var _ = struct{ FromEnd, Nearest, Nth uint64 }(cron.RelativeDays{})

// sentence joins the time of day and the dates.
func sentence(s cron.Fields) string {
	times, fixed := timeOfDay(numbers(s.Second), numbers(s.Minute), numbers(s.Hour))
	dates := dates(s)
	switch {
	case fixed && dates == "":
		return "every day " + times
	case fixed:
		return dates + " " + times
	case dates == "":
		return times
	}
	return times + ", " + dates
}

// days words an interval in days, whose weekday and time of day are those of From in the zone.
func days(name string, p job.Plan, n int) string {
	schedule, err := job.ParseSchedule(name, p)
	if err != nil {
		return strings.TrimSpace(p.Schedule)
	}
	from := p.From.Add(time.Second - 1).Truncate(time.Second).In(schedule.Location())
	clock := from.Format("15:04:05")
	if from.Second() == 0 {
		clock = clock[:len("15:04")]
	}
	if n%7 > 0 {
		return "every " + count(n, "day") + " at " + clock
	}
	return "every " + count(n/7, "week") + " on " + from.Weekday().String() + " at " + clock
}

// length writes a duration as a number of its largest whole unit: "90 minutes", "90 seconds". If that
// unit is the second, it writes more than two minutes as "2m30s".
func length(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}} {
		if d%unit.of == 0 {
			return count(int(d/unit.of), unit.name)
		}
	}
	if d > 2*time.Minute {
		return d.String()
	}
	return count(int(d/time.Second), "second")
}

// count returns "hour" or "3 hours".
func count(n int, unit string) string {
	if n == 1 {
		return unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// maxTimes bounds the times of day that are listed one by one.
const maxTimes = 6

// timeOfDay says at which times of a day something happens. fixed reports whether the text lists
// times of the clock ("at 07:00 and 12:00"), so that it reads well after a date.
func timeOfDay(s, m, h set) (text string, fixed bool) {
	if !s.one() {
		return seconds(s, m, h), false
	}
	clock := func(hour, minute int) string {
		if s.first() == 0 {
			return fmt.Sprintf("%02d:%02d", hour, minute)
		}
		return fmt.Sprintf("%02d:%02d:%02d", hour, minute, s.first())
	}
	exact := ""
	if s.first() != 0 {
		exact = fmt.Sprintf(", at second %d", s.first())
	}
	span := fmt.Sprintf(" from %s to %s", clock(h.first(), m.first()), clock(h.last(), m.last()))
	switch step := m.cycle(60); {
	case len(m)*len(h) <= maxTimes && !h.all(24):
		var times []string
		for _, hour := range h {
			for _, minute := range m {
				times = append(times, clock(hour, minute))
			}
		}
		return "at " + and(times), true
	case m.one() && h.all(24) && m.first() == 0 && exact == "":
		return "every hour, on the hour", false
	case m.one() && h.all(24):
		return fmt.Sprintf("every hour at minute %d", m.first()) + exact, false
	case m.one() && h.step() > 0:
		return "every " + count(h.step(), "hour") + span, false
	case step > 0 && h.all(24) && m.first() == 0:
		return "every " + count(step, "minute") + exact, false
	case step > 0 && h.all(24):
		return fmt.Sprintf("every %s, from minute %d of the hour on", count(step, "minute"), m.first()) + exact, false
	case step > 0 && h.within():
		return "every " + count(step, "minute") + span, false
	}
	return "at minute " + m.list(digits) + ofHours(h) + exact, false
}

// seconds is timeOfDay for more than one second in a minute.
func seconds(s, m, h set) string {
	text := "at second " + s.list(digits)
	if step := s.cycle(60); step > 0 && s.first() == 0 {
		text = "every " + count(step, "second")
	}
	switch {
	case m.all(60) && h.all(24):
		return text
	case m.all(60):
		return text + " of each minute" + ofHours(h)
	}
	return text + " of minute " + m.list(digits) + ofHours(h)
}

func ofHours(h set) string {
	if h.all(24) {
		return " of every hour"
	}
	if h.one() {
		return fmt.Sprintf(" of hour %d", h.first())
	}
	return " of the hours " + h.list(digits)
}

// dates says on which dates something happens. It returns "" if that is every date. As in every
// cron, a date has to match only one of the two day fields if both restrict it.
func dates(s cron.Fields) string {
	every := cron.Everything
	months, days := numbers(s.Month), numbers(s.Day)
	in, on := "", []string{}
	if s.Month != every.Month {
		in = " in " + months.list(month)
	}
	whole := s.Day == every.Day && s.Weekday == every.Weekday ||
		s.Either && (s.Day == every.Day || s.Weekday == every.Weekday) // like "1-31 * MON"
	switch {
	case whole && in == "":
		return ""
	case whole:
		return "every day" + in
	case s.Day == every.Day:
	case s.FromEnd|s.Nearest == 0 && days.one() && months.one():
		on = append(on, fmt.Sprintf("every year on %d %s", days.first(), month(months.first())))
	default:
		on = append(on, "on the "+monthDays(s)+ofMonth(in))
	}
	if s.Weekday != every.Weekday && s.Weekday != 0 {
		on = append(on, weekdays(s)+in)
	}
	if nth := nthWeekdays(s); nth != "" {
		on = append(on, "on the "+nth+ofMonth(in))
	}
	return strings.Join(on, ", and ")
}

// ofMonth returns in, or says that the days are those of any month.
func ofMonth(in string) string { return cmp.Or(in, " of the month") }

// monthDays names the days of a month: "1st, last working day and last day but 2".
func monthDays(s cron.Fields) string {
	parts := numbers(s.Day).parts(ordinal)
	for _, n := range numbers(s.Nearest) {
		if n == 0 {
			parts = append(parts, "last working day")
		} else {
			parts = append(parts, "working day nearest the "+ordinal(n))
		}
	}
	for _, n := range numbers(s.FromEnd) {
		if n == 0 {
			parts = append(parts, "last day")
		} else {
			parts = append(parts, fmt.Sprintf("last day but %d", n))
		}
	}
	return and(parts)
}

// nthWeekdays names the days of FRI#2 and FRIL: "2nd Friday and last Friday".
func nthWeekdays(s cron.Fields) string {
	var parts, last []string
	for _, bit := range numbers(s.Nth) {
		if n := bit / 8; n == 0 {
			last = append(last, "last "+weekday(bit))
		} else {
			parts = append(parts, ordinal(n)+" "+weekday(bit%8))
		}
	}
	return and(append(parts, last...))
}

func weekdays(s cron.Fields) string {
	days := numbers(s.Weekday)
	switch {
	case days.equal(0, 6):
		return "Saturday and Sunday"
	case days.one():
		return "every " + weekday(days.first())
	case days.first() == 0: // a week begins on Monday
		days = append(days[1:len(days):len(days)], 7)
	}
	return days.list(weekday)
}

func month(n int) string   { return time.Month(n).String() }
func weekday(n int) string { return time.Weekday(n % 7).String() }

// set is what a field matches, in ascending order.
type set []int

func numbers(mask uint64) (s set) {
	for ; mask != 0; mask &= mask - 1 {
		s = append(s, bits.TrailingZeros64(mask))
	}
	return s
}

func (s set) first() int { return s[0] }
func (s set) last() int  { return s[len(s)-1] }
func (s set) one() bool  { return len(s) == 1 }

// step returns the distance between neighbours, or 0 if it is not the same for all.
func (s set) step() int {
	if len(s) < 2 {
		return 0
	}
	n := s[1] - s[0]
	for i := range len(s) - 1 {
		if s[i+1]-s[i] != n {
			return 0
		}
	}
	return n
}

// cycle returns the step of a set whose numbers are evenly spread over 0 to whole-1, also from the
// last one around to the first: 15 for 0, 15, 30, 45 of 60. Otherwise it returns 0.
func (s set) cycle(whole int) int {
	n := s.step()
	if n == 0 || whole%n != 0 || len(s) != whole/n {
		return 0
	}
	return n
}

// all reports whether the set has all numbers of a field, of which there are whole.
func (s set) all(whole int) bool { return len(s) == whole }

// list names the members: "1, 2 and 5", or with ranges of three and more "1 to 3 and 5".
func (s set) list(name func(int) string) string { return and(s.parts(name)) }

// parts is list before it is joined.
func (s set) parts(name func(int) string) (parts []string) {
	for i := 0; i < len(s); {
		end := i
		for end+1 < len(s) && s[end+1] == s[end]+1 {
			end++
		}
		switch {
		case end-i >= 2:
			parts = append(parts, name(s[i])+" to "+name(s[end]))
		default:
			for _, n := range s[i : end+1] {
				parts = append(parts, name(n))
			}
		}
		i = end + 1
	}
	return parts
}

// and joins texts: "a, b and c".
func and(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

func digits(n int) string { return strconv.Itoa(n) }

// ordinal returns "1st", "2nd" and so on.
func ordinal(n int) string {
	suffix := "th"
	if n < 11 || n > 13 {
		if i := n % 10; i >= 1 && i <= 3 {
			suffix = []string{"st", "nd", "rd"}[i-1]
		}
	}
	return fmt.Sprint(n, suffix)
}

// within reports whether the set is the numbers from its first to its last.
func (s set) within() bool { return s.one() || s.step() == 1 }

func (s set) equal(other ...int) bool { return slices.Equal(s, other) }
